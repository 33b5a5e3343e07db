// A page that the server does not know any more, as it was started anew or the link was away for long, becomes a page of
// it without being loaded again: all that it shows, the caret and the place in it stay.
//
// The server is asked for the page, and what it made for that one is taken over: its id and those of its listeners. To
// load the page would end in the browser's own error, where no script goes on, if the server went again meanwhile.

const PATIENCE = 15000; // milliseconds, for a server that is just starting or has many to serve
const ENTITIES = { amp: "&", lt: "<", gt: ">", "#96": "`", "#36": "$" }; // as in nicegui/client.py

// The socket's `query` and the framework's `elements` become those of a new page. Rejects when the server does not
// answer, or not yet; when its answer is another page than this one, that is loaded.
export async function adopt(query, elements) {
  const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  if (answer.status >= 500) throw new Error(`the server answers ${answer.status}`);
  const made = answer.ok && read(new DOMParser().parseFromString(await answer.text(), "text/html"));
  if (!made || !fits(made, elements)) return location.reload();
  for (const [id, { events }] of Object.entries(made.elements)) elements[id].events = events ?? [];
  query.client_id = window.clientId = made.client;
  window.nextMessageId = made.message;
}

function read(page) {
  const script = [...page.scripts].map((one) => one.textContent).find((text) => text.includes("parseElements("));
  const client = script?.match(/'client_id': '([^']+)'/)?.[1];
  const message = script?.match(/'next_message_id': (\d+)/)?.[1];
  const elements = script?.match(/parseElements\(String\.raw`([^`]*)`\)/)?.[1];
  if (!client || !message || !elements) return null;
  return {
    client,
    message: Number(message),
    elements: JSON.parse(elements.replace(/&(amp|lt|gt|#96|#36);/g, (_, name) => ENTITIES[name])),
    files: files(page),
  };
}

// Of the same version: made of the same elements, with the same scripts and styles.
function fits(made, elements) {
  const here = files(document);
  return (
    Object.entries(made.elements).every(([id, { tag }]) => elements[id]?.tag === tag) &&
    made.files.every((file) => here.includes(file))
  );
}

function files(page) {
  const links = [...page.querySelectorAll("link[href]")].map((link) => link.getAttribute("href"));
  return [page.querySelector("script[type=importmap]")?.textContent, ...links];
}
