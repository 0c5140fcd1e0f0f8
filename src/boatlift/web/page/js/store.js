// What the store holds, and what has happened to the dataflow.

import { h, table } from "./dom.js";
import { ago, bytes, clock, count, moment, short, span, step, steps } from "./format.js";
import { pair } from "./flow.js";

export function store(page) {
  const held = page.snap.status.activity?.process.state_bytes ?? 0;
  const {
    docs: [{ checkpoints }, { kept }, { points }, { records }],
    tag,
  } = page;
  const total = kept.reduce((all, each) => all + each.size, 0),
    newest = Object.values(Object.groupBy(checkpoints, (each) => each.processor)).map((each) => each.at(-1));
  return [
    h(
      "div",
      { class: "two even" },
      h(
        "section",
        { class: "panel" },
        h(
          "header",
          {},
          h("h2", {}, "Newest checkpoints"),
          h("p", { class: "legend" }, "amber: new since the one before"),
        ),
        newest.length ? checkpointTable(newest) : h("p", { class: "empty" }, "There is none."),
      ),
      h(
        "section",
        { class: "panel" },
        h("header", {}, h("h2", {}, `What the store keeps, ${bytes(total)}`), held > 0 && h("p", { class: "legend" }, `and ${bytes(held)} of states in the memory of the owner's computer`)),
        keptList(kept),
      ),
    ),
    points.length > 0 &&
      h("section", { class: "panel" }, h("header", {}, h("h2", {}, "Restore points")), pointTable(points)),
    h(
      "section",
      { class: "panel" },
      h("header", {}, h("h2", {}, "Log, newest first"), tags(records, tag, page)),
      logTable(records, tag),
    ),
  ];
}

function checkpointTable(newest) {
  const columns = [
    ["Processor", ""],
    ["Step", "n"],
    ["Runs", "n"],
    ["Rows", "n"],
    ["Bytes", "n"],
    ["", "wide"],
    ["New", "n"],
  ];
  return table(
    "Newest checkpoints",
    columns,
    newest.map((each) => [
      each.processor,
      step(each.step),
      count(each.files),
      short(each.rows),
      bytes(each.bytes),
      h(
        "span",
        { class: "share" },
        h("i", { style: { width: `${(100 * each.new_bytes) / Math.max(1, each.bytes)}%` } }),
      ),
      bytes(each.new_bytes),
    ]),
  );
}

function keptList(kept) {
  const sorted = [...kept].sort((a, b) => b.size - a.size),
    most = Math.max(1, ...sorted.map((each) => each.size));
  return h(
    "ul",
    { class: "bars kept" },
    sorted.map((each) =>
      h(
        "li",
        {},
        h(
          "span",
          { class: "name" },
          each.what === "choices" ? "determinants" : each.what,
          each.whose !== "-" && h("em", {}, ` of ${each.whose}`),
        ),
        h("span", {}, h("i", { style: { width: `${(100 * each.size) / most}%` } })),
        h("small", {}, each.size ? bytes(each.size) : steps(each.times)),
        h("small", { class: "why" }, `for ${each.why}`),
      ),
    ),
  );
}

function pointTable(points) {
  const columns = [
    ["Point", ""],
    ["Kept at", ""],
    ["After step", ""],
    ["Until", ""],
    ["Bytes for it alone", "n"],
  ];
  return table(
    "Restore points",
    columns,
    points.map((each) => [
      each.name,
      moment(each.at),
      Object.entries(each.steps)
        .map(([source, number]) => `${step(number)} of ${source}`)
        .join(", "),
      each.until ? moment(each.until) : "it is dropped",
      bytes(each.bytes),
    ]),
  );
}

function tags(records, tag, page) {
  const choice = (name, text) =>
    h(
      "button",
      {
        type: "button",
        class: tag === name ? "on" : "",
        data: { keep: `tag ${text}` },
        on: { click: () => page.set({ tag: name }) },
      },
      text,
    );
  return h(
    "span",
    { class: "choice" },
    choice(null, "all"),
    [...new Set(records.map((each) => each.record))].sort().map((name) => choice(name, name)),
  );
}

const SHOWN = 60,
  LONGEST = 400;

function logTable(records, tag) {
  const lines = records.filter((each) => !tag || each.record === tag).slice(0, SHOWN);
  const written = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  return h(
    "div",
    { class: "log" },
    table(
      "Log",
      [
        ["Object", "n"],
        ["Written", ""],
        ["Record", ""],
        ["Fields", ""],
      ],
      lines.map(({ object, written_at: at, record, ...fields }) => [
        String(object),
        clock(at),
        h("span", { class: `record r-${record}` }, record),
        h(
          "span",
          {},
          Object.entries(fields).map(([key, value]) => [h("em", {}, `${key} `), cut(written(value)), "  "]),
        ),
      ]),
    ),
  );
}

const cut = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text);

const SIGNS = { claim: "▲", stop: "■", rollback: "↩", decision: "✓", change: "⇄", point: "◆", failure: "×", replay: "↻", takeover: "▲" };

export function history({ snap, docs: [{ operations, environment, store: id }] }) {
  return [
    h(
      "section",
      { class: "panel" },
      h("header", {}, h("h2", {}, "What has happened, newest first")),
      h(
        "ol",
        { class: "events" },
        operations.map((each) =>
          h(
            "li",
            { class: each.kind },
            h(
              "time",
              { datetime: each.at ? new Date(each.at).toISOString() : null, title: moment(each.at) },
              ago(each.at, snap.now),
            ),
            h("i", { "aria-hidden": "true" }, SIGNS[each.kind] ?? "·"),
            h(
              "div",
              {},
              h("b", {}, each.kind === "claim" ? "owner" : each.kind),
              each.who && ` ${each.who}`,
              each.step >= 0 && ` · step ${step(each.step)}`,
              each.milliseconds > 0 && ` · ${span(each.milliseconds)}`,
              h("p", {}, each.said),
            ),
          ),
        ),
      ),
    ),
    h(
      "section",
      { class: "panel" },
      h("header", {}, h("h2", {}, "Environment")),
      h(
        "dl",
        { class: "row" },
        Object.entries(environment).map(([key, value]) =>
          pair(key, typeof value === "string" ? value : cut(JSON.stringify(value))),
        ),
        pair("store", snap.place),
        pair("its id", id),
      ),
    ),
  ];
}
