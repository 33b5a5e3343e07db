// One file on its way into the notebook's folder: under which path, how far it is, and why it did not arrive.

import { freshId } from "./commands.js";

export const LIMIT = 64 * 2 ** 20; // bytes of one file, as on the server
const COMPARED = 16 * 2 ** 20; // bytes up to which a file is compared with one of its name
const ARRIVES = 20000; // milliseconds in which a file that was sent should be in its place

// The files in a paste or a drop; none when it is text that somebody wants to paste. Some systems give a file's name as text.
export function filesIn(transfer) {
  const files = [...(transfer?.files ?? [])];
  const text = (transfer?.getData("text/plain") ?? "").trim();
  return !text || text.split(/\r?\n/).every((line, at) => files[at]?.name === line.split("/").at(-1)) ? files : [];
}

export function folders(transfer) {
  const entries = [...(transfer?.items ?? [])].map((item) => item.webkitGetAsEntry?.());
  return entries.filter((entry) => entry?.isDirectory).map((entry) => entry.name);
}

// What a pasted picture is called: when it came.
function stamp() {
  const now = new Date(Date.now() - new Date().getTimezoneOffset() * 60000).toISOString();
  return now.slice(0, 19).replaceAll("-", "").replaceAll(":", "").replace("T", "-");
}

async function digest(file) {
  if (!crypto.subtle) return null; // not a secure context
  const sum = await crypto.subtle.digest("SHA-256", await file.arrayBuffer());
  return Array.from(new Uint8Array(sum), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// The path for `file`, and whether it is there already. Another file of that name is never replaced. `taken(path)`: whether
// one is on its way there; `claim(path)` says that this one is, in the same moment in which it was free.
export async function placeFor(file, known, taken, claim, pasted) {
  const generic = pasted && /^image\.\w+$/.test(file.name);
  const name = generic ? `pasted/${stamp()}${/\.\w+$/.exec(file.name)[0]}` : file.name;
  const [, stem, suffix] = /^(.*?)(\.[^./]*)?$/s.exec(name);
  for (let number = 1; ; number += 1) {
    const path = number === 1 ? name : `${stem}-${number}${suffix ?? ""}`;
    const there = known.get(path);
    if (taken(path)) continue;
    if (!there || there.deleted) {
      claim(path);
      return { path, there: false };
    }
    if (there.bytes === file.size && file.size <= COMPARED && (await digest(file)) === there.sha256) return { path, there: true };
  }
}

// Sends `file` to `address`. Resolves to {sha256} when it is stored; rejects with words. `told(share)` of 1; `control` gets
// `abort`.
export function send(file, address, told, control) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    control.abort = () => request.abort();
    request.open("PUT", `${address}?id=${freshId()}`);
    request.upload.onprogress = (event) => event.lengthComputable && told(event.loaded / event.total);
    request.onload = () => {
      let said = {};
      try {
        said = JSON.parse(request.responseText);
      } catch {
        // A page of something in between: its status says enough.
      }
      if (request.status >= 200 && request.status < 300) resolve(said);
      else reject(said.detail || said.title || `the server answered ${request.status}`);
    };
    request.onerror = () => reject("it could not be sent: the server does not answer, or the file cannot be read");
    request.onabort = () => reject("");
    request.send(file);
  });
}

// Until the notebook has the file, so that a run asked for now finds it.
export async function arrived(path, sha256, known, gone) {
  const until = performance.now() + ARRIVES;
  while (performance.now() < until && !gone()) {
    const file = known().get(path);
    if (file && !file.deleted && (!sha256 || file.sha256 === sha256)) return true;
    await new Promise((resolve) => setTimeout(resolve, 60));
  }
  return false;
}
