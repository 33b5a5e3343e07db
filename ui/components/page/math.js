// Formulas: TeX is turned into MathML by the server, once each, and drawn by the browser with its own fonts.

const NAMESPACE = "http://www.w3.org/1998/Math/MathML";
const LONGEST = 4000; // characters, as the server has it
const known = new Map(); // `display` and source -> promise of a MathML text

// The formula as an element, which shows its source until, and unless, the server has an answer.
export function formula(source, display) {
  const node = document.createElement(display ? "div" : "span");
  node.className = display ? "formula block" : "formula";
  node.textContent = display ? `$$${source}$$` : `$${source}$`;
  if (source.length > LONGEST) return node;
  const key = `${display ? 1 : 0}${source}`;
  if (!known.has(key)) {
    if (known.size > 2000) known.clear();
    const asked = ask(source, display);
    known.set(key, asked);
    asked.catch(() => known.delete(key));
  }
  known.get(key).then(
    (text) => {
      const drawn = parsed(text);
      if (drawn) node.replaceChildren(drawn);
    },
    (problem) => (node.title = problem.message),
  );
  return node;
}

async function ask(source, display) {
  const answer = await fetch(`/api/v1/math?${new URLSearchParams({ tex: source, display: display ? "true" : "false" })}`);
  if (!answer.ok) throw new Error("This formula cannot be drawn");
  return answer.text();
}

// The server's answer holds MathML and nothing else; it is read as XML, so it cannot become anything else here either.
function parsed(text) {
  const root = new DOMParser().parseFromString(text, "application/xml").documentElement;
  return root.namespaceURI === NAMESPACE && root.localName === "math" ? document.importNode(root, true) : null;
}
