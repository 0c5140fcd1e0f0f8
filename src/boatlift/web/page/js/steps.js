// The steps of each unit on one axis of time: a row a unit, a bar a step. Drawn on a canvas: thousands are nothing.
// The table below it says the same in text.

import { h, ink, table, tip } from "./dom.js";
import { bytes, clock, count, span, step } from "./format.js";

const ROW = 30,
  AXIS = 26,
  SLOW = 2,
  TICKS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 21600, 86400];

const KEYS = {
  done: "step",
  slow: "over twice its median",
  again: "executed again",
  seen: "visible in a sink",
  diamond: "checkpoint",
  bad: "rollback",
  cross: "failure",
};

export function steps(page) {
  const {
      snap,
      seconds,
      docs: [past],
    } = page,
    spans = [
      [10, "10 s"],
      [60, "1 min"],
      [600, "10 min"],
      [0, "all"],
    ];
  const choice = spans.map(([n, text]) =>
    h(
      "button",
      {
        type: "button",
        class: seconds === n ? "on" : "",
        data: { keep: `span ${n}` },
        on: { click: () => page.set({ seconds: n }) },
      },
      text,
    ),
  );
  const legend = Object.entries(KEYS).map(([key, text]) => h("span", {}, h("i", { class: `key ${key}` }), text));
  const timed = past.steps.filter(([, , at]) => at > 0);
  return [
    h(
      "section",
      { class: "panel" },
      h(
        "header",
        {},
        h("h2", {}, "Steps"),
        h("p", { class: "legend" }, legend),
        h("span", { class: "choice" }, choice),
      ),
      timed.length
        ? waterfall(snap, past, seconds, page.open)
        : h(
            "p",
            { class: "empty" },
            "The log has no steps: it keeps those since the last checkpoints, and after a clean stop none.",
          ),
    ),
    past.failures.length > 0 &&
      h("section", { class: "panel" }, h("header", {}, h("h2", {}, "Failures that were retried")), failures(past)),
    timed.length > 0 &&
      h("section", { class: "panel" }, h("header", {}, h("h2", {}, "Slowest of these")), slowest(timed)),
  ];
}

const MOST_FAILURES = 20;

function failures({ failures: all }) {
  const rows = all
    .slice(-MOST_FAILURES)
    .reverse()
    .map(([who, number, at, said]) => [who, step(number), clock(at), said]);
  const columns = [
    ["Processor", ""],
    ["Step", "n"],
    ["At", ""],
    ["Error", "why"],
  ];
  return table("Failures that were retried", columns, rows);
}

function slowest(timed) {
  const rows = [...timed]
    .sort(([, , , a], [, , , b]) => b - a)
    .slice(0, 10)
    .map(([unit, number, at, took, rows_, again]) => [
      unit,
      step(number),
      clock(at),
      span(took),
      count(rows_),
      again ? "executed again" : "",
    ]);
  return table(
    "Slowest steps",
    [
      ["Processor", ""],
      ["Step", "n"],
      ["Recorded", ""],
      ["Took", "n"],
      ["Rows in", "n"],
      ["", ""],
    ],
    rows,
  );
}

// The axis: the newest moment of the log, and so many seconds before it; a clock that jumps leaves no bar outside.
function axis({ steps: all, checkpoints, commits, failures: failed }, seconds) {
  const moments = [...all, ...checkpoints, ...commits, ...failed].map((each) => each[2]).filter(Boolean);
  const last = moments.reduce((a, b) => Math.max(a, b), 0),
    first = moments.reduce((a, b) => Math.min(a, b), last);
  const longest = all.reduce((most, each) => Math.max(most, each[3]), 0);
  const from = seconds ? last - seconds * 1000 : first - longest,
    more = Math.max(200, (last - from) * 0.02);
  return { from, to: last + more };
}

function waterfall(snap, past, seconds, onPick) {
  const units = snap.picture.units,
    row = Object.fromEntries(units.map((unit, n) => [unit.name, n]));
  const canvas = h("canvas", {
    role: "img",
    "aria-label": "The steps of each processor by time; the table below has the slowest",
  });
  const wrap = h("div", { class: "waterfall" }, canvas),
    shown = [];
  wrap.redraw = () => {
    shown.length = 0;
    draw(
      canvas,
      wrap.clientWidth,
      { units, row, past, seconds, sinkRow: (name) => row[snap.picture.sinks[name]?.unit] },
      shown,
    );
  };
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect(),
      x = event.clientX - box.left,
      at = Math.floor((event.clientY - box.top - AXIS) / ROW);
    const hit = shown.findLast(([left, right, n]) => n === at && x >= left - 2 && x <= right + 2);
    tip(hit && event, ...(hit?.[3] ?? []));
  });
  canvas.addEventListener("mouseleave", () => tip(null));
  canvas.addEventListener("click", (event) => {
    const unit = units[Math.floor((event.clientY - canvas.getBoundingClientRect().top - AXIS) / ROW)];
    if (unit) onPick(unit.name);
  });
  requestAnimationFrame(wrap.redraw);
  return wrap;
}

function draw(canvas, width, { units, row, past, seconds, sinkRow }, shown) {
  const label = width < 560 ? 84 : 140,
    height = AXIS + units.length * ROW + 6,
    { from, to } = axis(past, seconds);
  canvas.width = width * devicePixelRatio;
  canvas.height = height * devicePixelRatio;
  canvas.style.height = `${height}px`;
  const c = canvas.getContext("2d"),
    x = (at) => label + ((at - from) / (to - from)) * (width - label - 10);
  c.scale(devicePixelRatio, devicePixelRatio);
  frame(c, { label, width, height, from, to, x, units });
  c.save();
  c.beginPath();
  c.rect(label, 0, width - label, height);
  c.clip();
  const took = units.map(() => []);
  for (const [unit, , , milliseconds, , again] of past.steps)
    if (unit in row && !again) took[row[unit]].push(milliseconds);
  const typical = took.map((each) => each.sort((a, b) => a - b)[each.length >> 1] ?? Infinity);
  for (const [unit, number, at, milliseconds, rows, again] of past.steps) {
    if (!(unit in row) || at < from) continue;
    const left = x(at - milliseconds),
      wide = Math.max(1.5, x(at) - left),
      y = AXIS + row[unit] * ROW + 7;
    c.fillStyle = ink(again ? "--again" : milliseconds > SLOW * typical[row[unit]] ? "--slow" : "--done-line");
    c.beginPath();
    c.roundRect(left, y, wide, ROW - 14, Math.min(3, wide / 2));
    c.fill();
    const words = `${count(rows)} rows in ${span(milliseconds)}, recorded at ${clock(at)}${again ? ", executed again" : ""}`;
    shown.push([left, left + wide, row[unit], [h("b", {}, `${unit}, step ${step(number)}`), h("br"), words]]);
  }
  c.fillStyle = ink("--good");
  for (const [sink, , at] of past.commits)
    if (at >= from && sinkRow(sink) !== undefined) c.fillRect(x(at), AXIS + sinkRow(sink) * ROW + ROW - 6, 2, 5);
  for (const [unit, number, at, size] of past.checkpoints) {
    if (!(unit in row) || at < from) continue;
    diamond(c, x(at), AXIS + row[unit] * ROW + ROW / 2);
    shown.push([
      x(at) - 6,
      x(at) + 6,
      row[unit],
      [h("b", {}, `${unit}, checkpoint of step ${step(number)}`), h("br"), bytes(size)],
    ]);
  }
  c.strokeStyle = c.fillStyle = ink("--bad");
  for (const [unit, number, at] of past.rollbacks) {
    if (!(unit in row) || at < from) continue;
    c.fillRect(x(at), AXIS + row[unit] * ROW, 1.5, ROW);
    shown.push([
      x(at) - 3,
      x(at) + 3,
      row[unit],
      [h("b", {}, unit), ` went back to ${number < 0 ? "its start" : `step ${step(number)}`}`],
    ]);
  }
  c.lineWidth = 2;
  for (const [who, number, at, said] of past.failures) {
    const n = row[who] ?? sinkRow(who);
    if (n === undefined || at < from) continue;
    cross(c, x(at), AXIS + n * ROW + ROW / 2);
    shown.push([x(at) - 6, x(at) + 6, n, [h("b", {}, `${who}, step ${step(number)}`), h("br"), said.slice(0, 300)]]);
  }
  c.restore();
}

function cross(c, x, y) {
  c.strokeStyle = ink("--bad");
  c.beginPath();
  for (const side of [-4, 4]) {
    c.moveTo(x - 4, y - side);
    c.lineTo(x + 4, y + side);
  }
  c.stroke();
}

function frame(c, { label, width, height, from, to, x, units }) {
  c.font = "11px system-ui, sans-serif";
  c.textAlign = "center";
  const tick = 1000 * (TICKS.find((each) => (each * 1000 * (width - label)) / (to - from) > 78) ?? TICKS.at(-1));
  for (let at = Math.ceil(from / tick) * tick; at < to; at += tick) {
    c.fillStyle = ink("--rule");
    c.fillRect(x(at), AXIS - 4, 1, height);
    c.fillStyle = ink("--muted");
    if (x(at) < width - 30) c.fillText(clock(at) + (tick < 1000 ? `.${Math.round((at % 1000) / 100)}` : ""), x(at), 13);
  }
  c.textAlign = "left";
  c.font = "600 12px system-ui, sans-serif";
  units.forEach((unit, n) => {
    c.fillStyle = ink("--rule");
    c.globalAlpha = 0.35;
    if (n % 2 === 0) c.fillRect(0, AXIS + n * ROW, width, ROW);
    c.globalAlpha = 1;
    c.fillStyle = ink("--ink");
    c.fillText(clipped(c, unit.executes.at(-1), label - 18), 10, AXIS + n * ROW + 19);
  });
}

function clipped(c, text, width) {
  if (c.measureText(text).width <= width) return text;
  let kept = text.slice(0, 40);
  while (kept.length > 2 && c.measureText(`${kept}…`).width > width) kept = kept.slice(0, -1);
  return `${kept}…`;
}

function diamond(c, x, y) {
  c.fillStyle = ink("--durable");
  c.strokeStyle = ink("--surface");
  c.beginPath();
  for (const [dx, dy] of [
    [0, -6],
    [6, 0],
    [0, 6],
    [-6, 0],
    [0, -6],
  ])
    c.lineTo(x + dx, y + dy);
  c.fill();
  c.stroke();
}
