// Numbers as people read them. What is unknown is a dash, never 0.

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

const unknown = (n) => n === null || n === undefined || Number.isNaN(n);

function scaled(n, units) {
  const [size, unit] = units.find(([least]) => n >= least * 0.9995) ?? [1, ""];
  const shown = n / size;
  return size === 1 ? null : `${shown.toFixed(shown < 9.95 ? 2 : shown < 99.5 ? 1 : 0)}${unit}`;
}

// A part of an address, of which nothing is certain: people type addresses by hand.
export function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const count = (n) => (unknown(n) ? "–" : WHOLE.format(n));

// The number of a step; the one before the first is none.
export const step = (n) => (unknown(n) || n < 0 ? "–" : WHOLE.format(n));

export const many = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

export const steps = (n) => many(n, "step");

export function short(n) {
  if (unknown(n)) return "–";
  return (
    scaled(n, [
      [1e9, "G"],
      [1e6, "M"],
      [1e3, "k"],
    ]) ?? (n < 10 && n % 1 ? n.toFixed(1) : WHOLE.format(n))
  );
}

export function bytes(n) {
  if (unknown(n)) return "–";
  return (
    scaled(n, [
      [2 ** 40, " TiB"],
      [2 ** 30, " GiB"],
      [2 ** 20, " MiB"],
      [2 ** 10, " KiB"],
    ]) ?? `${WHOLE.format(n)} B`
  );
}

export function span(ms) {
  if (unknown(ms)) return "–";
  if (ms < 1000) return `${ms < 9.95 && ms % 1 ? ms.toFixed(1) : Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 90) return `${seconds.toFixed(seconds < 9.95 ? 1 : 0)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  const hours = Math.floor((seconds % 86400) / 3600);
  return `${Math.floor(seconds / 86400)} d${hours ? ` ${hours} h` : ""}`;
}

// A clock that was set back makes something come from the future: it is of now.
export const ago = (at, now) => (!at ? "–" : now - at < 900 ? "now" : `${span(now - at)} ago`);

export const clock = (at) => (at ? new Date(at).toISOString().slice(11, 19) : "–");

export const moment = (at) => (at ? `${new Date(at).toISOString().slice(0, 19).replace("T", " ")} UTC` : "–");
