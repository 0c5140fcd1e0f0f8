// The rows of a sink, as they are visible now.

import { h, table } from "./dom.js";
import { count, decoded, step } from "./format.js";

const ROWS = 200; // in one document
const NUMBER = /^-?\d+(\.\d+)?(e[-+]?\d+)?$/;

export function asked(more) {
  const [of = "", from = ""] = more;
  return { of: decoded(of), from: /^\d{1,7}$/.test(from) ? Number(from) : 0 };
}

export const address = (of, from) => `#/rows/${encodeURIComponent(of)}${from ? `/${from}` : ""}`;

export const path = ({ of, from }) => `rows?of=${encodeURIComponent(of)}&from=${from}`;

export function rows({ docs: [{ sinks, of, rows: found, why }] }) {
  const place = sinks.find((each) => each.sink === of);
  return h(
    "section",
    { class: "panel rows" },
    h(
      "header",
      {},
      h("h2", {}, of ? `Rows of ${of}` : "Rows"),
      h(
        "span",
        { class: "choice" },
        sinks.map(({ sink }) =>
          h(
            "a",
            {
              href: address(sink, 0),
              class: sink === of ? "on" : "",
              "aria-current": sink === of ? "true" : null,
              data: { keep: `rows ${sink}` },
            },
            sink,
          ),
        ),
      ),
    ),
    place && h("p", { class: "hint" }, h("span", {}, said(place, found))),
    found ? shown(of, found) : h("p", { class: "empty" }, why),
  );
}

function said({ kind, path: where, table: name }, found) {
  const at = found && (found.step < 0 ? "no step is visible yet" : ["visible: step ", h("b", {}, step(found.step))]);
  return [[kind, name && `table ${name}`, where].filter(Boolean).join(" · "), at && " · ", at];
}

function shown(of, { columns, left_out: left, rows: lines, begin, total, more, order }) {
  const range = lines.length
    ? `${count(begin + 1)} to ${count(begin + lines.length)}${total === null ? "" : ` of ${count(total)}`}, ${order}`
    : "no rows";
  const move = (text, from, there) => there && h("a", { href: address(of, from), data: { keep: `rows ${text}` } }, text);
  return [
    lines.length > 0 &&
      table(
        `Rows of ${of}`,
        columns.map((name, n) => [name, lines.every((row) => NUMBER.test(row[n] ?? "0")) ? "n" : ""]),
        lines.map((row) => row.map((value) => value ?? h("em", { class: "null" }, "NULL"))),
      ),
    h(
      "p",
      { class: "hint pages" },
      h("span", {}, range, left > 0 && `; ${count(left)} columns more`),
      move("before", Math.max(0, begin - ROWS), begin > 0),
      move("next", begin + lines.length, more),
    ),
  ];
}
