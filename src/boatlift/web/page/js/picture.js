// The dataflow as a picture. Positions come from the server, and are a function of the program: nothing moves.

import { h, s, tip } from "./dom.js";
import { count, short, span, step } from "./format.js";
import { bar, words } from "./frontiers.js";

const POLICIES = {
  Ephemeral: ["○", "keeps nothing: it is executed again where a reader needs it"],
  Lazy: ["◐", "makes a checkpoint now and then"],
  Eager: ["●", "is durable at every step"],
  Batch: ["▤", "is durable when its epoch ends"],
  History: ["≡", "logs the rows that it takes"],
};

// What the store does not tell of a policy; empty if it tells all.
export function untold({ unrecorded }) {
  return unrecorded.length ? `the store does not tell ${unrecorded.join(", ")}` : "";
}

export function policy(unit) {
  const text = unit.policy,
    kind = text.split("(")[0],
    [sign, means] = POLICIES[kind] ?? ["·", ""];
  const number = /(?:every|epochs|seconds)=(\d+)/.exec(text)?.[1] ?? "";
  return h(
    "span",
    { class: `policy ${kind.toLowerCase()}`, title: [`${text}: it ${means}`, untold(unit)].filter(Boolean).join("; ") },
    h("i", { "aria-hidden": "true" }, sign),
    ` ${kind.toLowerCase()} ${number}`.trimEnd(),
  );
}

// The last step that has come to a unit, where its steps are those of its inputs.
export function arrived(unit, status) {
  const own = status.processors[unit.name].executed;
  if (unit.order !== "epochs") return own;
  return Math.max(own, Math.min(...unit.reads.map((name) => status.closed[name] ?? status.processors[name].executed)));
}

// The last step that is visible in a sink: its owner knows it a moment before the log does.
export function visible(name, { sinks, activity }) {
  return Math.max(sinks[name], activity?.sinks[name] ?? -1);
}

export function picture(snap, { drawn = snap.picture, selected, failed, costs, onPick, width }) {
  const boxes = Object.fromEntries(drawn.boxes.map((box) => [box.name, box]));
  const hint = snap.picture.units.length
    ? "Choose a processor: it is drawn with its neighbours."
    : "No process has run it yet: the store has no program.";
  if (!drawn.boxes.length) return h("p", { class: "empty" }, hint);
  const scale = Math.min(1.15, width / drawn.width);
  const shared = { snap, selected, failed, costs, onPick, cause: bottleneck(snap) };
  const cards = [
    ...drawn.boxes.filter((box) => box.name in snap.status.closed).map((box) => sourceCard(shared, box)),
    ...snap.picture.units.filter((unit) => unit.name in boxes).map((unit) => unitCard(shared, unit, boxes[unit.name])),
  ];
  const size = { width: `${drawn.width}px`, height: `${drawn.height}px` };
  return h(
    "div",
    { class: "graph", style: { height: `${drawn.height * scale}px` } },
    h("div", { class: "plane", style: { ...size, transform: `scale(${scale})` } }, edges(snap, drawn), cards),
  );
}

// The unit with the most steps waiting that is itself busy: who waits because of it is no cause.
function bottleneck({ picture: { units }, status, rates }) {
  const waiting = (unit) => arrived(unit, status) - status.processors[unit.name].executed;
  const busy = units.filter((unit) => (rates?.[unit.name]?.busy ?? 0) >= 0.5 && waiting(unit) >= 3);
  return busy.sort((a, b) => waiting(b) - waiting(a))[0]?.name;
}

function edges(snap, drawn) {
  const tipOf = s(
    "marker",
    {
      id: "tip",
      viewBox: "0 0 6 6",
      refX: 5.6,
      refY: 3,
      markerWidth: 8,
      markerHeight: 8,
      markerUnits: "userSpaceOnUse",
      orient: "auto",
    },
    s("path", { d: "M0,0L6,3L0,6z" }),
  );
  const still = !["alive", "stuck"].includes(snap.status.state);
  return s(
    "svg",
    { width: drawn.width, height: drawn.height, "aria-hidden": "true" },
    s("defs", {}, tipOf),
    drawn.edges.map((edge) => {
      const waiting = waits(snap, edge);
      const kind = edge.table ? " table" : still ? " still" : waiting >= 8 ? " full" : waiting >= 3 ? " filling" : "";
      return [
        s("path", {
          d: curve(edge.way),
          class: `edge${kind}`,
          "marker-end": "url(#tip)",
          data: { sender: edge.sender, reader: edge.reader },
        }),
        waiting >= 3 && !edge.table && queue(edge.way, waiting),
      ];
    }),
  );
}

function waits({ picture: { units }, status }, edge) {
  const unit = units.find((each) => each.name === edge.reader);
  const sent = status.closed[edge.sender] ?? status.processors[edge.sender].executed;
  return unit.order === "epochs" ? sent - status.processors[edge.reader].executed : 0;
}

function curve([first, ...rest]) {
  let path = `M${first}`,
    [x, y] = first;
  for (const [toX, toY] of rest) {
    const middle = (x + toX) / 2;
    path += y === toY ? `L${toX},${toY}` : `C${middle},${y} ${middle},${toY} ${toX},${toY}`;
    [x, y] = [toX, toY];
  }
  return path;
}

function queue(way, waiting) {
  const [[a, b], [c, d]] = way.slice(-2);
  return s(
    "g",
    { class: "queue", transform: `translate(${a * 0.42 + c * 0.58},${b * 0.42 + d * 0.58})` },
    s("rect", { x: -17, y: -10, width: 34, height: 20, rx: 10 }),
    s("text", { y: 4 }, short(waiting)),
  );
}

const placed = ({ x, y, width, height }) => ({
  left: `${x}px`,
  top: `${y}px`,
  width: `${width}px`,
  height: `${height}px`,
});

function card(classes, box, { onPick, selected }, attributes, ...children) {
  const chosen = selected === box.name ? ["selected"] : [];
  return h(
    "button",
    {
      type: "button",
      class: ["card", ...classes, ...chosen].join(" "),
      style: placed(box),
      data: { name: box.name, keep: `card ${box.name}` },
      on: { click: () => onPick(box.name) },
      ...attributes,
    },
    ...children,
  );
}

function sourceCard(shared, box) {
  const {
      status,
      picture: { sources },
    } = shared.snap,
    source = sources.find((each) => each.name === box.name);
  const waiting = status.input?.waiting?.[box.name];
  const late = waiting?.count ? `${short(waiting.count)} ${waiting.unit} wait` : waiting ? "nothing waits" : "";
  return card(
    ["source"],
    box,
    shared,
    { "aria-label": `source ${box.name}` },
    h("span", { class: "head" }, h("b", {}, box.name)),
    h("span", { class: "what" }, `${source.connector} · step ${step(status.closed[box.name])}`),
    h("span", { class: "what" }, late),
  );
}

function unitCard(shared, unit, box) {
  const { snap, failed, costs } = shared,
    own = snap.status.processors[unit.name],
    cost = costs?.[unit.name];
  const fails = failed?.has(unit.name),
    stuck = snap.status.stuck.find((each) => each.processor === unit.name);
  const moved = Boolean(cost?.steps),
    rates = snap.rates?.[unit.name];
  const replays = snap.status.state === "alive" && snap.status.activity?.units?.[unit.name]?.replaying;
  const tag = stuck ? "stuck" : replays ? "replaying" : shared.cause === unit.name ? "bottleneck" : null;
  const classes = ["unit", fails && "failed", !fails && moved && "moved", tag].filter(Boolean);
  const busy = Math.round(100 * Math.min(1, rates?.busy ?? 0));
  return card(
    classes,
    box,
    shared,
    {
      "aria-label": `${unit.name}: ${words(own, arrived(unit, snap.status))}`,
      "aria-pressed": failed ? String(!!fails) : null,
      on: {
        click: () => shared.onPick(unit.name),
        mousemove: (event) =>
          tip(
            event,
            h("b", {}, unit.executes.join(" › ")),
            ` ${unit.policy}`,
            untold(unit) && [h("br"), untold(unit)],
            h("br"),
            words(own, arrived(unit, snap.status)),
            rates && [h("br"), `busy ${busy} % of the time`],
          ),
        mouseleave: () => tip(null),
      },
    },
    h("span", { class: "gauge", "aria-hidden": "true" }, h("i", { style: { height: `${busy}%` } })),
    h("span", { class: "head" }, h("b", {}, unit.executes.join(" › "))),
    h(
      "span",
      { class: "what" },
      tag ? h("span", { class: "tag" }, tag) : h("span", { class: "kind" }, kinds(unit)),
      policy(unit),
    ),
    costs
      ? h("span", { class: `cost${moved ? "" : " none"}` }, costInWords(cost, fails))
      : h(
          "span",
          { class: "nums" },
          h("span", {}, `step ${step(own.executed)}`),
          h("span", {}, rates?.steps ? `${short(rates.rows)} rows/s` : ""),
        ),
    bar(own, { policy: unit.policy, arrived: arrived(unit, snap.status), undone: cost?.steps }),
    h("span", { class: "reads" }, `reads ${[...unit.reads, ...unit.looks_up].join(", ")}`),
    unit.sinks.map((name) => sinkRow(snap, name)),
  );
}

export const kinds = (unit) => unit.operators.join(" › ").replaceAll("_", " ") || "rows of its source";

function costInWords(cost, fails) {
  if (!cost?.steps) return fails ? "nothing again" : "goes on";
  return `↩ ${restored(cost)} · ${count(cost.steps)} again · ${span(cost.seconds * 1000)}`;
}

export const restored = (cost) =>
  cost.rolled_back_to === "the start" ? "start" : cost.rolled_back_to.replace("its checkpoint of ", "").slice(0, 24);

function sinkRow(snap, name) {
  const sink = snap.picture.sinks[name],
    held = visible(name, snap.status);
  const how = sink.exactly_once ? "exactly once" : "at least once";
  return h(
    "span",
    {
      class: `sink${sink.exactly_once ? "" : " loose"}`,
      data: { sink: name },
      title: `${name}, ${how}: visible up to step ${step(held)}`,
    },
    h("i", { "aria-hidden": "true" }, sink.exactly_once ? "⇥" : "≥1"),
    h("b", {}, name),
    h("em", {}, how),
    h("span", { class: "seen" }, step(held)),
  );
}
