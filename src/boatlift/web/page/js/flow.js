// The first page: the dataflow in short, as a picture, and as a table.

import { charts } from "./charts.js";
import { h, table } from "./dom.js";
import { ago, bytes, count, moment, short, span, step, steps } from "./format.js";
import { again, bar, legend } from "./frontiers.js";
import { arrived, kinds, picture, policy, untold } from "./picture.js";

const sum = (list, of) => list.reduce((total, each) => total + of(each), 0);

const stateBytes = (upkeep) => sum(upkeep.state, (part) => part.bytes);

// A clean stop leaves nothing to execute again.
const toReplay = (status) =>
  status.stopped_cleanly ? 0 : sum(Object.values(status.processors), (unit) => unit.to_replay);

function tiles({ status, picture: { units, sinks }, explain, rates, now }) {
  const tile = (name, value, more, tone = "") =>
    h(
      "div",
      { class: `tile ${tone}`, data: { tile: name } },
      h("span", {}, name),
      h("strong", {}, value),
      h("small", {}, more),
    );
  const replayed = toReplay(status),
    loose = Object.values(sinks).filter((sink) => !sink.exactly_once).length;
  const seconds = Math.max(0, ...Object.values(explain.processors).map((cost) => cost.seconds));
  const waiting = Object.values(status.input?.waiting ?? {}),
    oldest = waiting.map((each) => each.oldest_at).filter(Boolean);
  const upkeep = Object.values(explain.upkeep),
    kept = units.filter((unit) => unit.keeps_state).length;
  const taken = rates && sum(units, (unit) => rates[unit.name]?.fresh ?? 0);
  const done = rates && sum(units, (unit) => rates[unit.name]?.steps ?? 0);
  const held = status.activity?.process.state_bytes ?? 0;
  const exactly = Object.keys(sinks).length - loose;
  return h(
    "section",
    { class: "tiles", "aria-label": "In short" },
    tile(
      "Rows in",
      rates ? `${short(taken)}/s` : "–",
      rates ? `${short(done)} steps/s of all units` : "known while it runs",
    ),
    tile(
      "Not taken yet",
      waiting.length ? count(sum(waiting, (each) => each.count)) : "–",
      oldest.length
        ? `the oldest for ${span(now - Math.min(...oldest))}`
        : waiting.length
          ? "at the sources"
          : "known while it runs",
    ),
    tile(
      "On the way",
      bytes(status.scratch),
      status.owner?.bytes_in_flight ? `of ${bytes(status.owner.bytes_in_flight)} allowed` : "in scratch",
    ),
    tile("State", bytes(sum(upkeep, stateBytes)), `${kept} of ${units.length} units keep one${held ? `; ${bytes(held)} in memory` : ""}`),
    tile(
      status.state === "crashed" ? "The next start repeats" : "A failure of everything",
      replayed ? steps(replayed) : "costs nothing",
      replayed ? `in some ${span(seconds * 1000)}` : "all is durable",
      "accent",
    ),
    tile("Sinks", count(exactly), loose ? `exactly once, ${loose} at least once` : "exactly once"),
    tile("Last record", ago(status.last_record_at, now), moment(status.last_record_at)),
  );
}

export function flow(page) {
  const { snap, selected, around } = page,
    large = !snap.picture.boxes.length;
  const drawn = large ? around?.picture : snap.picture;
  return [
    tiles(snap),
    h(
      "section",
      { class: "panel picture" },
      h("header", {}, h("h2", {}, "Dataflow"), legend()),
      picture(snap, { drawn: drawn ?? snap.picture, selected, onPick: page.pick, width: page.width }),
    ),
    selected && details(page),
    charts(page),
    h("section", { class: "panel" }, h("header", {}, h("h2", {}, "Processors")), processors(page)),
  ];
}

function processors({ snap, selected, pick }) {
  const {
    status,
    picture: { units },
    explain,
    rates,
  } = snap;
  const columns = [
    ["Processor", ""],
    ["Policy", ""],
    ["Rows/s", "n"],
    ["ms a step", "n"],
    ["Busy", "n"],
    ["Frontiers", "wide"],
    ["Executed", "n"],
    ["Checkpoint", "n"],
    ["Stable", "n"],
    ["State", "n"],
    ["If everything failed", "n"],
  ];
  const rows = units.map((unit) => {
    const own = status.processors[unit.name],
      upkeep = explain.upkeep[unit.name],
      rate = rates?.[unit.name];
    const took = rate?.steps ? rate.milliseconds : upkeep.steps ? upkeep.milliseconds : null;
    const name = h(
      "button",
      { type: "button", data: { keep: `row ${unit.name}` }, on: { click: () => pick(unit.name) } },
      h("b", {}, unit.executes.join(" › ")),
    );
    return [
      [name, h("small", {}, kinds(unit), counts(status, unit.name))],
      policy(unit),
      rate ? short(rate.rows) : "–",
      took === null ? "–" : short(took),
      rate ? `${Math.round(rate.busy * 100)} %` : "–",
      bar(own, { policy: unit.policy, arrived: arrived(unit, status) }),
      step(own.executed),
      step(own.checkpoint),
      step(own.stable),
      upkeep.state.length ? bytes(stateBytes(upkeep)) : "–",
      again(status.stopped_cleanly ? 0 : own.to_replay),
    ];
  });
  const named = units.map((unit) => unit.name);
  return table("Processors", columns, rows, {
    className: "processors",
    attributes: (row) => ({ class: named[rows.indexOf(row)] === selected ? "selected" : "" }),
  });
}

// What an operator counts itself, such as late and bad rows.
function counts(status, name) {
  const late = status.event_times?.[name]?.late,
    bad = status.bad_rows?.[name]?.rows;
  return [
    late > 0 && h("span", { class: "count" }, `${count(late)} late`),
    bad > 0 && h("span", { class: "count bad" }, `${count(bad)} bad`),
  ];
}

const pair = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));

export { pair };

function details({ snap, selected, pick }) {
  const {
      picture: { units, sources },
      status,
      explain,
    } = snap,
    unit = units.find((each) => each.name === selected);
  const close = h(
    "button",
    { type: "button", class: "close", "aria-label": "Close", on: { click: () => pick(selected) } },
    "×",
  );
  if (!unit) {
    const source = sources.find((each) => each.name === selected),
      waiting = status.input?.waiting?.[selected];
    return h(
      "aside",
      { class: "panel details", "aria-label": selected },
      close,
      h("div", {}, h("h3", {}, selected), h("p", {}, `a source of ${source.connector}`)),
      h(
        "dl",
        {},
        pair("closed", step(status.closed[selected])),
        pair("not taken yet", waiting ? `${count(waiting.count)} ${waiting.unit}` : "–"),
      ),
      h("pre", {}, JSON.stringify(source.options, null, 1)),
    );
  }
  const own = status.processors[selected],
    { state } = explain.upkeep[selected];
  const most = Math.max(1, ...state.map((part) => part.bytes)),
    cost = explain.processors[selected];
  return h(
    "aside",
    { class: "panel details", "aria-label": selected },
    close,
    h(
      "div",
      {},
      h("h3", {}, unit.executes.join(" › ")),
      h("p", {}, policy(unit), ` · its steps are by ${unit.order}`),
      untold(unit) && h("p", { class: "untold" }, `Of its policy, ${untold(unit)}`),
      bar(own, { policy: unit.policy, arrived: arrived(unit, status) }),
      h(
        "dl",
        {},
        pair("reads", [...unit.reads, ...unit.looks_up].join(", ")),
        pair("executed", step(own.executed)),
        pair("checkpoint", step(own.checkpoint)),
        pair("stable", step(own.stable)),
      ),
    ),
    h(
      "div",
      {},
      h("h4", {}, "If everything failed now"),
      h("p", {}, `${cost.does}.`),
      cost.why_not_less && h("p", {}, `Why not less: ${cost.why_not_less}`),
      h(
        "p",
        { class: "links" },
        h("a", { href: "#/steps" }, "its steps"),
        h("a", { href: `#/failure/${encodeURIComponent(selected)}` }, "let it fail alone"),
      ),
    ),
    h(
      "div",
      {},
      h("h4", {}, "State"),
      state.length
        ? h(
            "ul",
            { class: "parts" },
            state.map((part) =>
              h(
                "li",
                {},
                h("span", {}, part.part || "all"),
                h("i", { style: { width: `${Math.max(2, (100 * part.bytes) / most)}%` } }),
                h("small", {}, `${short(part.rows)} rows in ${count(part.files)} runs, ${bytes(part.bytes)}`),
              ),
            ),
          )
        : h("p", {}, "It keeps none."),
    ),
  );
}
