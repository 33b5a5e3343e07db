// What a program made to run in a page runs in a page of its own: a sandboxed frame without our origin, which may ask no
// host, send no form and see nothing of Nightbook. It tells its height; nothing else that it says is listened to.

const POLICY =
  "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; " +
  "font-src data:; media-src data: blob:; form-action 'none'; base-uri 'none'";
const TALLEST = 20_000; // pixels
const CHANGES = 200; // a frame that changes its height more often than this keeps the last one and scrolls
const NEAR = "800px"; // frames this far from the window are made

const listeners = new WeakMap(); // a frame's window -> what hears its messages
addEventListener("message", (event) => {
  const hear = event.source && listeners.get(event.source);
  if (hear && event.data && typeof event.data === "object") hear(event.data);
});

const near = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting || !entry.target.isConnected) continue; // it may be gone since it was seen
      near.unobserve(entry.target);
      entry.target.make();
    }
  },
  { rootMargin: NEAR },
);

// A frame has the colours of the theme it was made in: another theme makes it anew.
const made = new Set();
function again() {
  for (const holder of made) {
    if (holder.isConnected) holder.make();
    else made.delete(holder);
  }
}
addEventListener("nightbook-theme", () => setTimeout(again));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTimeout(again));

const SIZER = `<script>{
  const tell = () => parent.postMessage({ height: Math.ceil(document.documentElement.getBoundingClientRect().height) }, "*");
  new ResizeObserver(tell).observe(document.documentElement);
  addEventListener("load", tell);
}</script>`;

function page(body, head) {
  const style = getComputedStyle(document.documentElement);
  const ink = getComputedStyle(document.body).color;
  return `<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${POLICY}"><base target="_blank"><style>
:root { color-scheme: ${style.colorScheme}; } html { overflow: auto; }
body { margin: 0; padding: 1px; color: ${ink}; font: 14px/1.5 ${style.getPropertyValue("--sans")}; display: flow-root; overflow-wrap: anywhere; }
table { border-collapse: collapse; font-size: 13px; } th, td { padding: 3px 10px; text-align: right; border-bottom: 1px solid color-mix(in srgb, currentColor 14%, transparent); }
pre, code { font-family: ${style.getPropertyValue("--mono")}; font-size: 13px; } img, svg { max-width: 100%; }
</style>${SIZER}${head}</head><body>${body}`;
}

function frame(source, { title, height, heard, ready }) {
  const holder = document.createElement("div");
  holder.className = "out-frame";
  holder.style.height = `${height}px`;
  holder.make = () => {
    const node = document.createElement("iframe");
    Object.assign(node, { title, srcdoc: source(), referrerPolicy: "no-referrer" });
    node.setAttribute("sandbox", "allow-scripts allow-popups allow-popups-to-escape-sandbox");
    let changes = 0;
    let loaded = false; // until then what it tells may be of the half of it
    made.add(holder);
    holder.replaceChildren(node);
    listeners.set(node.contentWindow, (said) => {
      if (Number.isFinite(said.height) && changes < CHANGES) {
        changes += 1;
        holder.style.height = `${Math.min(TALLEST, Math.max(loaded ? 20 : holder.offsetHeight, said.height))}px`;
      }
      heard?.(said, node, holder);
    });
    node.addEventListener("load", () => {
      loaded = true;
      ready?.(node);
    }, { once: true });
  };
  near.observe(holder);
  return holder;
}

// A piece of HTML that a program made.
export function framed(html) {
  return frame(() => page(html, ""), { title: "HTML output", height: 40 });
}

let library = null;
// plotly.js as text, once, when the first plot comes near: a frame without our origin cannot load it itself.
function plotly() {
  library ??= fetch(import.meta.resolve("nicegui-plotly")).then(
    (answer) => {
      if (!answer.ok) throw new Error(`plotly.js could not be loaded (${answer.status})`);
      return answer.text();
    },
  );
  library.catch(() => (library = null));
  return library;
}

const PLOTTER = `<style>body { padding: 0; overflow: hidden; } #plot { width: 100%; }</style><script>
addEventListener("message", async ({ data }) => {
  const failed = (problem) => parent.postMessage({ failed: String(problem?.message ?? problem).slice(0, 500) }, "*");
  addEventListener("error", (event) => failed(event.error ?? event.message));
  addEventListener("unhandledrejection", (event) => failed(event.reason));
  try {
    const script = document.createElement("script");
    script.type = "module";
    script.textContent = data.library;
    const there = new Promise((done) => (window.libraryThere = done));
    script.textContent += "\\n;window.libraryThere();";
    document.head.append(script);
    await there;
    // Outlines of the world are not at hand: a map without them, on which points and a figure's own geojson are drawn.
    const none = { type: "GeometryCollection", geometries: [] };
    const objects = { coastlines: none, land: none, ocean: none, lakes: none, rivers: none, countries: none, subunits: none };
    const empty = { type: "Topology", objects, arcs: [] };
    window.PlotlyGeoAssets = { topojson: new Proxy({}, { get: () => empty }) };
    const { layout = {}, config = {}, data: traces, frames } = data.figure;
    const dark = data.dark;
    const colours = dark ? { font: { color: "#e9e8f2" }, paper_bgcolor: "rgba(0,0,0,0)" } : { paper_bgcolor: "rgba(0,0,0,0)" };
    const wide = typeof layout.width === "number" ? layout.width : null;
    await window.Plotly.newPlot("plot", { data: traces, layout: { height: 420, ...layout, ...colours, autosize: !wide },
      config: { displaylogo: false, plotlyServerURL: "", ...config, responsive: !wide }, frames });
    document.querySelector("#plot").style.minHeight = "";
    if (!document.querySelector("#plot .main-svg")) throw new Error("plotly.js drew nothing");
    parent.postMessage({ plotted: true }, "*");
  } catch (problem) { failed(problem); }
}, { once: true });
</script>`;

// A plotly figure. `failed(why)` makes what stands in its place when plotly.js refuses it.
export function plotted(figure, failed) {
  if (!figure || typeof figure !== "object" || !Array.isArray(figure.data)) return failed("its specification has no list of traces");
  const traces = figure.data.findIndex((trace) => !trace || typeof trace !== "object" || Array.isArray(trace));
  if (traces >= 0) return failed(`trace ${traces + 1} of its specification is no object`);
  if (figure.layout !== undefined && (typeof figure.layout !== "object" || Array.isArray(figure.layout))) return failed("its layout is no object");
  const missing = lacking(figure.data);
  if (missing && TILES.test(missing.type)) return failed(missing.words);
  const wanted = figure.layout?.height;
  const height = Number.isFinite(wanted) ? Math.min(2000, Math.max(100, wanted)) : 420;
  const holder = frame(() => page(`<div id="plot" style="min-height: ${height}px"></div>`, PLOTTER), {
    title: "Plot",
    height,
    ready: (node) =>
      plotly().then(
        (library) => node.contentWindow?.postMessage({ library, figure, dark: dark() }, "*"),
        (problem) => node.parentNode?.replaceWith(failed(problem.message)),
      ),
    heard: (said, _, holder) => {
      if (said.plotted) holder.dataset.plotted = "";
      if (typeof said.failed === "string" && !("plotted" in holder.dataset)) holder.replaceWith(failed(said.failed));
    },
  });
  if (!missing) return holder;
  const both = document.createElement("div");
  const words = document.createElement("p");
  Object.assign(words, { className: "out-note", textContent: missing.words });
  both.append(holder, words);
  return both;
}

const TILES = /(map|mapbox)$/;
const OUTLINES = /^(scattergeo|choropleth)$/;

// What a map needs that stands on another host: no output asks one, so the reader is told. Null for all other plots.
function lacking(traces) {
  const type = traces.map((trace) => String(trace.type ?? "")).find((one) => one !== "heatmap" && one !== "treemap" && (TILES.test(one) || OUTLINES.test(one)));
  if (!type) return null;
  if (TILES.test(type)) return { type, words: `its map (${type}) is made of tiles from another host, and no output may ask one. An image of it (fig.to_image) can be shown` };
  if (traces.every((trace) => trace.type === "choropleth" && trace.geojson && typeof trace.geojson === "object")) return null; // it brings its own
  return { type, words: "Outlines of coasts and countries come from another host, which no output may ask: this map is drawn without them. Shapes of the figure's own (geojson) are shown." };
}

// Whether the page is dark now: by the ink, whichever way the theme was chosen.
function dark() {
  const [red, green, blue] = (getComputedStyle(document.body).color.match(/[\d.]+/g) ?? [0, 0, 0]).map(Number);
  return red + green + blue > 384;
}
