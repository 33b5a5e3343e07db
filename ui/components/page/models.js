// Which models there are: what the API says of places and of the team's choice, and what each place answers when it is
// asked. Once for all that is on the page.

import { reactive } from "vue";

export const models = reactive({ known: null, problem: "", tried: {} });

// Resolves to the decoded answer; rejects with an `Error` that says why.
export async function ask(path, method, body) {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  let answer;
  try {
    answer = await fetch(`/api/v1/models${path}`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Error("the server does not answer");
  }
  const told = await answer.json().catch(() => null);
  if (!answer.ok) throw new Error(told?.detail ?? told?.title ?? `status ${answer.status}`);
  return told;
}

let looking = null;

// Reads the places and the choice; asked twice at once, it is asked once.
export function look() {
  looking ??= ask("", "GET")
    .then(
      (known) => Object.assign(models, { known, problem: "" }),
      (error) => (models.problem = error.message),
    )
    .finally(() => (looking = null));
  return looking;
}

// Asks a place which models it has; `unasked`: nobody pressed for it, so that silence there is no failure.
export async function attempt(place, unasked = false) {
  models.tried[place.id] = { ...models.tried[place.id], busy: true };
  try {
    models.tried[place.id] = { ...(await ask(`/${place.id}/try`, "POST")), unasked };
  } catch (error) {
    models.tried[place.id] = { error: error.message, models: [], unasked };
  }
}
