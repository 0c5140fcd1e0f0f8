// The documents of the console, and its events. The token travels in a header, and never in a cookie: so a page of
// another site can send none.

const KEY = "boatlift-token";

const given = /^#token=([^&/]+)$/.exec(location.hash)?.[1];
if (given) {
  sessionStorage.setItem(KEY, given); // from the address that `boatlift console` prints
  history.replaceState(null, "", `${location.pathname}#/`);
}

function headers() {
  const token = sessionStorage.getItem(KEY);
  return token ? { authorization: `Bearer ${token}` } : {};
}

// An answer that is no document: what the console says of it, with its condition.
export class Refused extends Error {
  constructor(condition, message) {
    super(message);
    this.condition = condition;
  }
}

async function refusal(answer) {
  const said = await answer.json().catch(() => ({}));
  return new Refused(said.condition ?? `HTTP ${answer.status}`, said.message ?? "The console has not said why.");
}

const known = new Map(); // path to tag, document, and when it came
const MOST_KNOWN = 64;

export async function get(path) {
  const { tag, document, came } = known.get(path) ?? {};
  const answer = await fetch(`api/v1/${path}`, { headers: { ...headers(), ...(tag && { "if-none-match": tag }) } });
  if (answer.status === 304) return { ...document, now: document.now + performance.now() - came };
  if (!answer.ok) throw await refusal(answer);
  const fresh = await answer.json();
  known.delete(path);
  known.set(path, { tag: answer.headers.get("etag"), document: fresh, came: performance.now() });
  if (known.size > MOST_KNOWN) known.delete(known.keys().next().value);
  return fresh;
}

export function explained(failed) {
  return `explain?fail=${encodeURIComponent([...failed].sort().join(","))}`;
}

const LONGEST_REST = 8000;

// Follows the events until the page is left. `fetch`, because EventSource can send no header.
export async function follow({ onEvent, onLive }) {
  for (let rest = 500; ; rest = Math.min(rest * 2, LONGEST_REST)) {
    try {
      const answer = await fetch("api/v1/events", { headers: headers() });
      if (!answer.ok) throw await refusal(answer);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      onLive(true);
      for (let text = ""; ;) {
        const { value, done } = await reader.read();
        if (done) break;
        rest = 500;
        text += value;
        for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
          const lines = text
            .slice(0, end)
            .split("\n")
            .map((line) => line.split(/: ?(.*)/s).slice(0, 2));
          const { event, data } = Object.fromEntries(lines);
          if (data) onEvent(event, JSON.parse(data));
        }
      }
    } catch (error) {
      if (error instanceof Refused && error.condition === "BAD_TOKEN") return onEvent("trouble", error);
    }
    onLive(false);
    await new Promise((resolve) => setTimeout(resolve, rest));
  }
}
