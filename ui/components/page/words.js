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
