// What a failure would cost: the recovery plan for any set of processors, as `boatlift explain --fail` has it.

import { h, table } from "./dom.js";
import { count, short, span, steps } from "./format.js";
import { picture } from "./picture.js";

export function failure(page) {
  const {
      snap,
      failed,
      docs: [answer, { alone }],
    } = page,
    { units } = snap.picture,
    costs = answer.processors;
  const shown = failed.size ? failed : new Set(units.map((unit) => unit.name));
  const moved = Object.values(costs).filter((cost) => cost.steps),
    goOn = units.length - moved.length;
  const total = moved.reduce((all, cost) => all + cost.steps, 0),
    seconds = Math.max(0, ...moved.map((cost) => cost.seconds));
  const which = failed.size ? [...failed].join(", ") : "everything";
  const everything = h(
    "button",
    {
      type: "button",
      class: failed.size ? "" : "on",
      data: { keep: "everything" },
      on: { click: () => page.fail([]) },
    },
    "everything",
  );
  return [
    h(
      "section",
      { class: "panel picture" },
      h("header", {}, h("h2", {}, "What would a failure cost now?"), h("span", { class: "choice" }, everything)),
      h(
        "p",
        { class: "verdict" },
        `If ${which} failed now: `,
        moved.length
          ? [
              h("b", {}, steps(total)),
              ` of ${moved.length === 1 ? "1 processor" : `${moved.length} processors`} would be executed again, in some `,
              h("b", {}, span(seconds * 1000)),
              goOn && failed.size ? `; ${goOn} would go on.` : ".",
            ]
          : h("b", {}, "nothing would be executed again."),
      ),
      h(
        "p",
        { class: "hint" },
        "Click processors to let them fail together. The address of this page keeps the choice.",
      ),
      picture(snap, { failed: shown, costs, onPick: page.toggle, width: page.width }),
    ),
    h(
      "div",
      { class: "two" },
      h(
        "section",
        { class: "panel" },
        h("header", {}, h("h2", {}, "Where each goes back to, and why not less")),
        backTo(costs),
      ),
      Object.keys(alone).length > 0 &&
        h("section", { class: "panel" }, h("header", {}, h("h2", {}, "If one failed alone")), ranking(alone, page)),
    ),
  ];
}

function backTo(costs) {
  const columns = [
    ["Processor", ""],
    ["Goes back to", ""],
    ["Steps again", "n"],
    ["Rows", "n"],
    ["Some", "n"],
    ["Why not less", "why"],
  ];
  const rows = Object.entries(costs).map(([name, cost]) => [
    name,
    cost.rolled_back_to,
    ...(cost.steps ? [count(cost.steps), short(cost.rows), span(cost.seconds * 1000)] : ["–", "–", "–"]),
    reason(cost),
  ]);
  return table("Where each goes back to", columns, rows, {
    attributes: ([name]) => ({ class: costs[name].steps ? "" : "quiet" }),
  });
}

const FIRST = 80;

// A reason can have hundreds of characters: the first ones, and the rest on demand.
function reason({ why_not_less: why }) {
  if (!why || why.length <= FIRST) return why ?? "";
  return h("details", {}, h("summary", {}, `${why.slice(0, FIRST)}…`), why.slice(FIRST));
}

function ranking(alone, page) {
  const costs = Object.entries(alone).sort(([, a], [, b]) => b.seconds - a.seconds || b.steps - a.steps);
  const most = Math.max(0.001, ...costs.map(([, cost]) => cost.seconds));
  return h(
    "ul",
    { class: "bars" },
    costs.map(([name, cost]) =>
      h(
        "li",
        {},
        h("button", { type: "button", data: { keep: `alone ${name}` }, on: { click: () => page.fail([name]) } }, name),
        h("span", {}, cost.steps > 0 && h("i", { style: { width: `${(100 * cost.seconds) / most}%` } })),
        h("small", {}, cost.steps ? `${span(cost.seconds * 1000)}, ${steps(cost.steps)}` : "nothing"),
      ),
    ),
  );
}
