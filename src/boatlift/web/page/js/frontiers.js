// A frontier as a bar: how sure each of the last steps is, up to the newest that has arrived. The deeper, the surer.

import { h } from "./dom.js";
import { count, step, steps } from "./format.js";

const DEPTHS = {
  stable: "stable: no failure can undo it",
  durable: "in a checkpoint",
  done: "executed, in memory",
  waiting: "waiting",
};

const FEWEST = 8,
  MOST = 100;

// The steps shown: twice those from one checkpoint to the next, or that wait; fewer in a young run.
function shown(unit, policy, newest) {
  const every = Number(/(?:every|epochs)=(\d+)/.exec(policy)?.[1] ?? 20);
  return Math.max(FEWEST, Math.min(MOST, Math.max(2 * every, 2 * (newest - unit.executed)), newest + 1));
}

export function bar(unit, { policy = "", arrived = unit.executed, undone = 0 } = {}) {
  const newest = Math.max(unit.executed, arrived),
    steps_ = shown(unit, policy, newest),
    first = newest - steps_;
  const ends = [first, unit.stable, unit.checkpoint, unit.executed, newest].map((end) => Math.max(first, end));
  for (let n = 1; n < ends.length; n++) ends[n] = Math.max(ends[n - 1], ends[n]); // what is stable needs no checkpoint
  const parts = Object.keys(DEPTHS).map((name, n) => [name, ends[n + 1] - ends[n]]);
  const before = Math.max(0, Math.min(steps_, -1 - first)); // there is nothing before the first step
  if (before) parts.splice(0, 1, ["blank", before], ["stable", Math.max(0, parts[0][1] - before)]);
  const from = Math.min(undone, steps_) / steps_;
  return h(
    "span",
    { class: "rail", role: "img", "aria-label": words(unit, arrived) },
    parts.filter(([, part]) => part > 0).map(([name, part]) => h("i", { class: name, style: { "flex-grow": part } })),
    undone > 0 &&
      h("b", {
        class: "undone",
        style: { right: `${(100 * (newest - unit.executed)) / steps_}%`, width: `${100 * from}%` },
      }),
  );
}

export function words(unit, arrived = unit.executed) {
  const waiting = arrived > unit.executed ? `, ${count(arrived - unit.executed)} waiting` : "";
  const checkpoint = unit.checkpoint < 0 ? "no checkpoint" : `checkpoint ${step(unit.checkpoint)}`;
  return `executed up to ${step(unit.executed)}, ${checkpoint}, stable up to ${step(unit.stable)}${waiting}`;
}

export function legend() {
  return h(
    "p",
    { class: "legend" },
    Object.entries(DEPTHS).map(([name, text]) => h("span", {}, h("i", { class: `key ${name}` }), text)),
  );
}

export const again = (n) => (n ? steps(n) : "nothing");
