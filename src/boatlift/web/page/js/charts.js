// Charts over time, as SVG: one axis and one cursor for all of them. A line has gaps where nothing is known.

import { h, replace, s } from "./dom.js";
import { bytes, clock, count, short, span } from "./format.js";

const HEIGHT = 118,
  LEFT = 44,
  RIGHT = 10,
  TOP = 8,
  BOTTOM = 20;
const YOUNG = 30; // seconds that are shown at least
const STEPS = [5, 10, 30, 60, 300, 600, 1800, 3600, 4 * 3600]; // seconds between two times of the axis

const seconds = (value) => span(1000 * value);

const told = (unit, value) => (value === null ? "–" : unit(value));

const CHARTS = [
  {
    title: "Rows a second",
    unit: short,
    lines: [
      { key: "taken", name: "in", ink: "--durable", fill: true },
      { key: "shown", name: "visible", ink: "--good", dash: "5 3" },
    ],
  },
  {
    title: "From input to visible",
    unit: (value) => (value === 0 ? "0" : seconds(value)),
    lines: [
      { key: "p50", name: "p50", ink: "--durable" },
      { key: "p99", name: "p99", ink: "--slow", dash: "5 3" },
    ],
  },
  { title: "Steps that wait", unit: count, least: 2, lines: [{ key: "waiting", name: "", ink: "--slow", fill: true }] },
  { title: "Bytes that wait", unit: bytes, least: 1024, base: 1024, lines: [{ key: "waiting_bytes", name: "", ink: "--durable", fill: true }] },
];

const MARKS = { claim: "--good", failure: "--bad", rollback: "--again", takeover: "--good" };
const WINDOWS = { 300: "5 min", 3600: "1 h", 86400: "24 h" };

// The panel with all charts; `since` are the seconds that they show.
export function charts(page) {
  const {
      docs: [data],
      span: shown,
    } = page;
  const choice = Object.entries(WINDOWS).map(([length, name]) =>
    h(
      "button",
      {
        type: "button",
        class: Number(length) === shown ? "on" : "",
        "aria-pressed": String(Number(length) === shown),
        data: { keep: `span ${length}` },
        on: { click: () => page.chart(Number(length)) },
      },
      name,
    ),
  );
  const known = data?.series.at.length > 0;
  return h(
    "section",
    { class: "panel charts", "aria-label": "Over time" },
    h(
      "header",
      {},
      h("h2", {}, "Over time"),
      known && h("p", { class: "legend" }, legend(data.marks)),
      h("span", { class: "choice" }, choice),
    ),
    known
      ? grid(data, page.width)
      : h("p", { class: "empty" }, "Nothing is recorded of this time. A store in a bucket keeps no journal."),
  );
}

function legend(marks) {
  const names = { claim: "owner", failure: "failure", rollback: "rollback", takeover: "takeover" };
  return Object.keys(names)
    .filter((kind) => marks.some((each) => each.kind === kind))
    .map((kind) => h("span", {}, h("i", { class: `key mark ${kind}` }), names[kind]));
}

// A young run has the whole width, and not its edge.
function axis({ from, to, series: { at } }) {
  return Math.max(from, Math.min(at[0] - YOUNG * 100, to - YOUNG * 1000));
}

function grid(data, width) {
  const columns = width > 1100 ? 4 : width > 560 ? 2 : 1,
    each = Math.floor((width - (columns - 1) * 16) / columns) - 6;
  const drawn = CHARTS.map((chart) => drawing(chart, { ...data, from: axis(data) }, each));
  const look = (at) => drawn.forEach((one) => one.look(at));
  for (const { svg, when } of drawn) {
    svg.addEventListener("mousemove", (event) => look(when(event.clientX - svg.getBoundingClientRect().left)));
    svg.addEventListener("mouseleave", () => look(null));
  }
  look(null);
  return h(
    "div",
    { class: "grid", style: { "grid-template-columns": `repeat(${columns}, minmax(0, 1fr))` } },
    drawn.map(({ figure }) => figure),
  );
}

function drawing({ title, unit, lines, least = 0, base = 10 }, { series, from, to, marks }, width) {
  const x = (at) => LEFT + ((at - from) / (to - from)) * (width - LEFT - RIGHT),
    most = Math.max(...lines.flatMap(({ key }) => series[key].map((value) => value ?? 0))),
    top = rounded(Math.max(least, most), base),
    y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  const cursor = s("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const outputs = lines.map(() => h("output", {})),
    time = h("small", {});
  const svg = s(
    "svg",
    { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": words(title, unit, lines, series) },
    [0, top / 2, top].map((value) => [
      s("line", { class: "rule", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
      s("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, unit(value)),
    ]),
    times(from, to, width).map((at) => s("text", { x: x(at), y: HEIGHT - 5, "text-anchor": "middle" }, clock(at).slice(0, to - from > 6e5 ? 5 : 8))),
    marks.filter((mark) => mark.at >= from).map((mark) => s("line", { class: `mark ${mark.kind}`, x1: x(mark.at), x2: x(mark.at), y1: TOP, y2: HEIGHT - BOTTOM, style: { stroke: `var(${MARKS[mark.kind]})` } })),
    lines.map((line) => parts(series.at, series[line.key]).map((part) => path(part, line, x, y))),
    cursor,
  );
  const figure = h(
    "figure",
    { class: "chart", data: { chart: title } },
    h("figcaption", {}, h("b", {}, title), h("span", {}, lines.map((line, n) => [h("i", { class: "key", style: { background: `var(${line.ink})` } }), line.name && `${line.name} `, outputs[n], " "])), time),
    svg,
  );
  const when = (left) => {
    const at = from + ((left - LEFT) / (width - LEFT - RIGHT)) * (to - from);
    return series.at.reduce((best, each, n) => (Math.abs(each - at) < Math.abs(series.at[best] - at) ? n : best), 0);
  };
  const look = (n) => {
    const at = n ?? series.at.length - 1;
    cursor.setAttribute("visibility", n === null ? "hidden" : "visible");
    cursor.setAttribute("x1", x(series.at[at]));
    cursor.setAttribute("x2", x(series.at[at]));
    lines.forEach(({ key }, k) => {
      const value = series[key][at];
      outputs[k].textContent = told(unit, value);
    });
    const at_ = lines[0].key === "waiting" && series.fullest[at] ? ` at ${series.fullest[at]}` : "";
    replace(time, n === null ? at_ : `${at_} ${clock(series.at[at])}`);
  };
  return { figure, svg, look, when };
}

// The stretches of a column in which values are known.
function parts(times, values) {
  const found = [];
  values.forEach((value, n) => {
    if (value === null) return;
    if (n === 0 || values[n - 1] === null) found.push([]);
    found.at(-1).push([times[n], value]);
  });
  return found;
}

function path(points, { ink, fill, dash }, x, y) {
  const line = points.map(([at, value], n) => `${n ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const only = points.length === 1 && s("circle", { cx: x(points[0][0]), cy: y(points[0][1]), r: 2.5, style: { fill: `var(${ink})` } });
  const area = fill && points.length > 1 && `${line}L${x(points.at(-1)[0]).toFixed(1)} ${y(0)}L${x(points[0][0]).toFixed(1)} ${y(0)}Z`;
  return [
    area && s("path", { class: "area", d: area, style: { fill: `var(${ink})` } }),
    s("path", { class: "line", d: line, "stroke-dasharray": dash, style: { stroke: `var(${ink})` } }),
    only,
  ];
}

// A number above the largest value, so that the half of it is a short number, too.
function rounded(most, base) {
  if (!(most > 0)) return 1;
  const size = base ** Math.floor(Math.log(most) / Math.log(base)),
    steps = base === 10 ? [1, 2, 4, 6, 10] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  return steps.map((n) => n * size).find((n) => n >= most) ?? base * size;
}

function times(from, to, width) {
  const step = 1000 * (STEPS.find((each) => ((to - from) / (each * 1000)) * 62 < width - LEFT - RIGHT) ?? STEPS.at(-1));
  const found = [];
  for (let at = Math.ceil((from + 0.05 * (to - from)) / step) * step; at < to - 0.05 * (to - from); at += step) found.push(at);
  return found;
}

function words(title, unit, lines, series) {
  const newest = lines.map(({ key, name }) => `${name} ${told(unit, series[key].at(-1))}`.trim());
  return `${title}: ${newest.join(", ")}`;
}
