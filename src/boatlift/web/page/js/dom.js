// Elements by function. Text is always set as text: names, errors and rows come from programs and data.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, call] of Object.entries(value)) element.addEventListener(event, call);
    else if (name === "style") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  replace(element, children);
  return element;
}

export const h = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

export function replace(element, ...children) {
  const shown = children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false);
  element.replaceChildren(...shown);
}

export const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A table. A column is [heading, "n" for numbers, or ""]; a row is its cells, of which the first is its heading.
export function table(name, columns, rows, { attributes = () => ({}), className = "" } = {}) {
  const cell = (value, at) =>
    at === 0
      ? h("th", { scope: "row", class: columns[0][1] || null }, value)
      : value instanceof HTMLTableCellElement
        ? value
        : h("td", { class: columns[at][1] }, value);
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": name, data: { keep: name } },
    h(
      "table",
      { class: className },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          columns.map(([text, kind]) => h("th", { scope: "col", class: kind }, text)),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((row) => h("tr", attributes(row), row.map(cell))),
      ),
    ),
  );
}

let bubble = null;

export function tip(event, ...lines) {
  bubble ??= document.body.appendChild(h("div", { class: "tip", role: "tooltip" }));
  bubble.hidden = !event;
  if (!event) return;
  replace(bubble, lines);
  const { width, height } = bubble.getBoundingClientRect();
  const left = Math.max(8, Math.min(event.clientX + 14, innerWidth - width - 8)),
    below = event.clientY + 16;
  bubble.style.left = `${left}px`;
  bubble.style.top = `${below + height > innerHeight - 8 ? Math.max(8, event.clientY - height - 12) : below}px`;
}
