// The page: what it shows is a function of the documents, of the address, and of a few choices.

import { Refused, explained, follow, get } from "./api.js";
import { h, replace, tip } from "./dom.js";
import { failure } from "./failure.js";
import { flow } from "./flow.js";
import { ago, decoded, span, step, steps as inSteps } from "./format.js";
import { ratesOf } from "./rates.js";
import { asked as askedRows, path as rowsPath, rows } from "./rows.js";
import { steps } from "./steps.js";
import { history as past, store } from "./store.js";

const PAGES = {
  "": { name: "Dataflow", draw: flow, documents: () => [`series?seconds=${page.span}`] },
  steps: { name: "Steps", draw: steps, documents: () => ["steps"] },
  failure: { name: "What if", draw: failure, documents: ({ failed }) => [explained(failed), "alone"] },
  store: { name: "Store", draw: store, documents: () => ["checkpoints", "kept", "points", "log"] },
  rows: { name: "Rows", draw: rows, documents: ({ rowsOf }) => [rowsPath(rowsOf)] },
  history: { name: "History", draw: past, documents: () => ["operations"] },
};
const STATES = {
  new: ["never run", ""],
  stopped: ["stopped", ""],
  alive: ["running", "good"],
  stuck: ["stuck", "warn"],
  crashed: ["crashed", "bad"],
  "running or crashed": ["running or crashed", "warn"],
};
const AGAIN_SECONDS = 2; // from one look at a page's own documents to the next, while news come
const ALONE_SECONDS = 5; // the same while none come

const byId = (id) => document.getElementById(id);
let live = false,
  trouble = null,
  drawn = 0,
  due = null,
  looked = 0,
  held = false,
  token = 0,
  told = 0;

const page = {
  snap: null,
  docs: [],
  around: null,
  selected: null,
  failed: new Set(),
  seconds: 60,
  span: 300,
  tag: null,
  at: "",
  address: "",
  get width() {
    return byId("main").clientWidth - (innerWidth < 720 ? 24 : 40) - 38; // the padding of the page and of the panel
  },
  set(choices) {
    Object.assign(page, choices);
    draw();
  },
  pick(name) {
    page.set({ selected: page.selected === name ? null : name });
    if (!page.snap.picture.boxes.length && page.selected) load(`picture?around=${encodeURIComponent(page.selected)}`);
  },
  open(name) {
    page.selected = name;
    location.hash = "#/";
  },
  chart(seconds) {
    page.span = seconds;
    show();
  },
  toggle(name) {
    if (name in page.snap.status.closed) return; // a source does not fail: its input is outside
    const failed = new Set(page.failed);
    if (!failed.delete(name)) failed.add(name);
    page.fail(failed);
  },
  fail(failed) {
    const names = [...failed].sort().map(encodeURIComponent).join(",");
    location.hash = `#/failure${names && `/${names}`}`;
  },
};

async function load(path) {
  page.around = await get(path).catch(() => null);
  draw();
}

function head() {
  const { status, now } = page.snap,
    [state, tone] = STATES[status.state] ?? [status.state, ""],
    replays = replaying(status);
  const owner =
    status.owner &&
    (["alive", "stuck"].includes(status.state)
      ? [h("b", {}, status.owner.host), `, owner since ${ago(status.owner.at, now)}`]
      : ["last owner ", h("b", {}, status.owner.host), `, last record ${ago(status.last_record_at, now)}`]);
  const theme = h(
    "button",
    {
      type: "button",
      class: "theme",
      "aria-label": "Light or dark",
      title: "Light or dark",
      data: { keep: "theme" },
      on: { click: other },
    },
    "◑",
  );
  replace(
    byId("top"),
    h(
      "a",
      { class: "mark", href: "#/", data: { keep: "mark" } },
      h("img", { src: "mark.svg", alt: "" }),
      h("span", {}, "Boatlift"),
    ),
    h("h1", {}, status.dataflow),
    h("span", { class: `state ${replays ? "warn" : tone}` }, replays ? "running, replaying" : state),
    h("span", { class: "owner" }, owner),
    status.standbys.map((each) =>
      h(
        "span",
        { class: `standby${each.ready ? "" : " warming"}` },
        h("i", { "aria-hidden": "true" }, "◇"),
        h("b", {}, `${each.host}:${each.pid}`),
        each.ready ? " stands by" : " gets ready",
        each.behind ? `, ${each.behind} objects behind` : "",
      ),
    ),
    h("span", { class: "space" }),
    sparksPage(status),
    h(
      "span",
      { class: `live${live ? " on" : ""}`, title: live ? "news come as they happen" : "the page is not connected" },
      live ? "live" : "from the store",
    ),
    theme,
  );
  document.title = `${status.dataflow}: ${state} · Boatlift`;
}

// The report may be anybody's: no other scheme becomes a link.
function sparksPage({ state, activity }) {
  if (!["alive", "stuck"].includes(state) || !/^https?:\/\//.test(activity?.page ?? "")) return null;
  const title = "Spark's own page: its jobs are named after steps";
  return h("a", { class: "spark", href: activity.page, target: "_blank", rel: "noopener noreferrer", title }, "Spark ↗");
}

// The owner says which units execute steps of before a failure.
const replaying = (status) =>
  status.state === "alive" && Object.values(status.activity?.units ?? {}).some((unit) => unit.replaying);

function other() {
  const dark =
    (document.documentElement.dataset.theme ??
      (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  draw();
}

// At most one: the worst thing that is true.
function banner() {
  const { status, again, now } = page.snap,
    moved = Object.values(status.processors).filter((unit) => unit.to_replay);
  const replayed = moved.reduce((all, unit) => all + unit.to_replay, 0);
  const say = (tone, title, text, command) =>
    h("div", { class: `banner ${tone}` }, h("strong", {}, title), h("p", {}, text), command && h("code", {}, command));
  const next = `The next start executes ${inSteps(replayed)} of ${moved.length === 1 ? "1 processor" : `${moved.length} processors`} again.`;
  if (trouble) return say("bad", `[${trouble.condition}]`, trouble.message);
  if (status.state === "crashed")
    return say(
      "bad",
      "Its process has ended without a clean stop",
      `Nothing is lost. ${status.adoptable ? "If this computer starts it, no recorded step is executed again. Elsewhere: " : ""}${next}`,
      again,
    );
  if (status.stuck.length)
    return say(
      "warn",
      "It makes no progress",
      status.stuck
        .map(
          (each) =>
            `${each.processor}${each.step < 0 ? "" : `, step ${step(each.step)}`}, for ${span(now - each.since)}: ${each.why}`,
        )
        .join("; "),
    );
  if (status.last_record_at - now > 60_000)
    return say(
      "warn",
      "The clocks of the computers differ",
      `The newest record is of ${span(status.last_record_at - now)} from now, by the clock of this console.`,
    );
  if (status.state === "running or crashed")
    return say(
      "warn",
      "This computer cannot tell whether its process lives",
      `If it has crashed, nothing is lost. ${next}`,
    );
  if (status.state === "stopped")
    return say("", "It has stopped cleanly", "Everything is durable. The next start executes no step again.", again);
  return null;
}

// What the address asks for.
function asked() {
  const [key, ...rest] = location.hash.replace(/^#\/?/, "").split("/"),
    at = key in PAGES ? key : "",
    more = rest[0] ?? "";
  return {
    at,
    address: location.hash,
    rowsOf: askedRows(at === "rows" ? rest : []),
    failed: new Set(at === "failure" ? more.split(",").filter(Boolean).map(decoded) : []),
  };
}

// Shows the page of the address, once its documents are there.
async function show({ again = false } = {}) {
  const mine = ++token,
    next = asked();
  try {
    const docs = await Promise.all(PAGES[next.at].documents(next).map(part));
    if (mine !== token) return;
    looked = performance.now();
    Object.assign(page, next, { docs });
    draw();
  } catch (error) {
    if (mine !== token || again) return; // what is there stays
    Object.assign(page, next);
    failed(error);
  }
}

// Charts are a part of their page, which is drawn without them, too.
const part = (path) => (path.startsWith("series") ? get(path).catch(() => null) : get(path));

function failed(error) {
  tabs();
  replace(
    byId("main"),
    h(
      "section",
      { class: "panel trouble" },
      h("h2", {}, error.condition ? `[${error.condition}]` : "This page cannot be drawn"),
      h("p", {}, error.message),
    ),
  );
  settled();
}

function tabs() {
  replace(
    byId("tabs"),
    Object.entries(PAGES).map(([key, { name }]) =>
      h("a", { href: `#/${key}`, "aria-current": key === page.at ? "page" : null, data: { keep: `tab ${key}` } }, name),
    ),
  );
}

function draw() {
  if (!page.snap) return;
  page.snap.now += performance.now() - told; // what is said of the time goes on, though no news come
  told = performance.now();
  if (held) return later(); // a press would miss its button
  const focus = document.activeElement?.dataset?.keep,
    main = byId("main"),
    marked = getSelection();
  tip(null);
  head();
  tabs();
  replace(byId("banner"), banner());
  if (!marked.isCollapsed && main.contains(marked.anchorNode)) return later(); // somebody copies
  const scrolled = [...document.querySelectorAll(".scroll")].map((each) => [
    each.dataset.keep,
    each.scrollLeft,
    each.scrollTop,
  ]);
  main.className = `page-${page.at || "flow"}`;
  try {
    replace(main, PAGES[page.at].draw(page));
  } catch (error) {
    console.error(error);
    return failed(error); // the other pages still can be drawn
  }
  const kept = Object.fromEntries(
    [...document.querySelectorAll("[data-keep]")].map((each) => [each.dataset.keep, each]),
  );
  for (const [name, left, top] of scrolled) kept[name]?.scrollTo(left, top);
  kept[focus]?.focus({ preventScroll: true });
  settled();
}

function later(milliseconds = 400) {
  due ??= setTimeout(() => {
    due = null;
    if (!document.hidden) draw();
  }, milliseconds);
}

function settled() {
  Object.assign(document.documentElement.dataset, { drawn: ++drawn, at: page.address }); // a test can wait for it
}

function news(kind, said) {
  trouble = kind === "trouble" ? said : null;
  if (kind === "status") {
    page.snap = { ...page.snap, now: said.now, status: said, rates: ratesOf(said) };
    told = performance.now();
    soon();
  }
  later(250);
}

// Looks at the page's own documents again, after the last news too.
let looking = null;
function soon() {
  looking ??= setTimeout(
    () => {
      looking = null;
      if (!document.hidden) refresh();
    },
    Math.max(0, looked + AGAIN_SECONDS * 1000 - performance.now()),
  );
}

async function refresh() {
  looked = performance.now();
  try {
    const fresh = await get("snapshot"),
      { snap } = page,
      newer = snap.status.now > fresh.now; // an event came meanwhile
    page.snap = { ...fresh, rates: snap.rates, ...(newer && { status: snap.status, now: snap.now }) };
    if (!newer) told = performance.now();
  } catch (error) {
    if (error instanceof Refused) trouble = error;
  }
  await show({ again: true });
}

addEventListener("pointerdown", () => (held = true));
for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, () => setTimeout(() => (held = false)));
addEventListener("hashchange", show);
addEventListener("keydown", (event) => event.key === "Escape" && page.selected && page.set({ selected: null }));
document.addEventListener("visibilitychange", () => document.hidden || (page.snap && refresh()));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
let resized;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(draw, 120);
});

for (let rest = 1000; !page.snap; rest = Math.min(2 * rest, 8000)) {
  try {
    page.snap = await get("snapshot");
    told = performance.now();
  } catch (error) {
    failed(error);
    await new Promise((resolve) => setTimeout(resolve, rest)); // a store that is away comes back, perhaps
  }
}
await show();
setInterval(() => document.hidden || (live ? later(0) : refresh()), ALONE_SECONDS * 1000);
follow({
  onLive: (on) => {
    live = on;
    head();
  },
  onEvent: news,
});
