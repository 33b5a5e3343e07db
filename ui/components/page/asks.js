// Questions that wait for a person, whichever page they are shown on: when each denies itself, how they are answered, and
// how many there are.

import { reactive } from "vue";
import { call } from "./commands.js";

// ask -> the moment of this page's own clock at which it denies itself. Filled from seconds left, as the server tells them.
export const dues = reactive(new Map());

// All that wait, in all notebooks, as the server last told: {ask, notebook_id, notebook, title, …}.
export const inbox = reactive({ asks: [], known: false });

export function heard(asks) {
  const now = performance.now();
  for (const ask of asks) dues.set(ask.ask, now + ask.left * 1000);
  inbox.asks = asks;
  inbox.known = true;
}

// Rejects with {status, detail}; 409: somebody, or silence, was faster, and `detail` says who and when.
export function decide(ask, verdict, scope, message) {
  if (verdict === "park") return call(`/api/v1/asks/${encodeURIComponent(ask)}/park`, {});
  const said = message.trim();
  return call(`/api/v1/asks/${encodeURIComponent(ask)}`, { verdict, scope, ...(said ? { message: said } : {}) });
}

// The turn that was denied by silence goes on at that step, approved.
export function reconsider(ask) {
  return call(`/api/v1/asks/${encodeURIComponent(ask)}/reconsider`, {});
}

const QUESTIONS = {
  shell: "May I run this command?",
  python: "May I run this code?",
  write_file: "May I write this file?",
  edit_file: "May I edit this file?",
  fetch: "May I fetch this address?",
  add_cell: "May I add this cell?",
  run_cell: "May I run this cell?",
};

export function question(ask) {
  return QUESTIONS[ask.tool] ?? `May I do this: ${ask.title}?`;
}

export const RISKS = {
  read: "Only reads",
  write: "Changes files",
  run: "Runs code",
  network: "Reaches the network",
};

// Whether nobody's answer was what said no.
export function silence(ask) {
  return ask.verdict === "deny" && ["timeout", "no_operator"].includes(ask.reason);
}

// How a question ended, in words; `who` and `when` are "" where nothing is to be said of them.
export function verdictWords({ verdict, reason, scope }, who, when) {
  const by = who ? ` by ${who}` : "";
  if (verdict === "approve") return `Approved${scope === "kind" ? " for this notebook" : ""}${by}${when}`;
  if (reason === "timeout") return `Denied itself${when}, nobody answered in time`;
  if (reason === "no_operator") return `Denied itself${when}, nobody was here`;
  if (reason === "cancelled") return `Denied${when}: the turn was stopped`;
  if (reason === "changed") return `Not asked any more${when}: what it points at has changed`;
  return `Denied${by}${when}`;
}
