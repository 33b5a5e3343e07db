// Numbers and states in words, one way for all pages.

export function duration(milliseconds) {
  const seconds = Math.floor(milliseconds / 1000);
  const two = (value) => String(value).padStart(2, "0");
  if (seconds < 3600) return `${two(Math.floor(seconds / 60))}:${two(seconds % 60)}`;
  return `${Math.floor(seconds / 3600)}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
}

export function took(milliseconds) {
  if (milliseconds < 1000) return `${milliseconds} ms`;
  if (milliseconds < 60000) return `${(milliseconds / 1000).toFixed(1)} s`;
  return duration(milliseconds);
}

// A place in line, from 1; 0 while it is not known.
export function inLine(place) {
  if (place < 1) return "Queued";
  if (place === 1) return "Next in line";
  const last = place % 100 > 10 && place % 100 < 14 ? 0 : place % 10;
  return `${place}${["th", "st", "nd", "rd"][last] ?? "th"} in line`;
}

export function size(bytes) {
  if (bytes < 1000) return `${bytes} bytes`;
  if (bytes < 1e6) return `${Math.round(bytes / 1e3)} KB`;
  return `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;
}

export function ago(seconds) {
  if (seconds < 45) return "just now";
  const steps = [
    [60, "minute"],
    [3600, "hour"],
    [86400, "day"],
  ];
  let best = `${Math.max(1, Math.round(seconds / 60))} min ago`;
  for (const [unit, word] of steps.slice(1)) {
    if (seconds < unit * 0.95) break;
    const count = Math.max(1, Math.round(seconds / unit));
    best = `${count} ${word}${count === 1 ? "" : "s"} ago`;
  }
  return best;
}

export function counted(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

// How long somebody was away, in whole minutes, hours or days.
export function away(seconds) {
  if (seconds < 5400) return counted(Math.max(1, Math.round(seconds / 60)), "minute");
  if (seconds < 129600) return counted(Math.round(seconds / 3600), "hour");
  return counted(Math.round(seconds / 86400), "day");
}

// Seconds still to go: "3:36", "23 h".
export function span(seconds) {
  const whole = Math.ceil(seconds);
  if (whole >= 7200) return `${Math.round(whole / 3600)} h`;
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

// A time of the server as this device tells it.
export function hour(at, seconds = false) {
  const options = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...(seconds ? { second: "2-digit" } : {}) };
  return new Date(at).toLocaleTimeString(undefined, options);
}
