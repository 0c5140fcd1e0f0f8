"""A picture as SVG, without a script: for notebooks, which show it on GitHub and in print too. Pure.

Its ink is that of the text around it (`currentColor`). Its one colour is a blue that can be read on white and on black.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from boatlift.runtime.inspect.picture import DrawnBox, DrawnEdge, Picture, SourceBox, UnitBox

BLUE = "#3b7ddd"

SIGNS = {"Ephemeral": "○", "Lazy": "◐", "Eager": "●", "Batch": "▤", "History": "≡"}
"""Of policies, as the console has them."""

TITLE_LETTERS, LINE_LETTERS = 21, 31  # so many fit into a box of `picture.WIDTH`

LINE = 20.0  # from one line of a box to the next


def svg_of(picture: Picture) -> str:
    """Return a picture as an element `svg`: a box for each unit with its sinks, a round one for each source.

    Whatever the names are, they are text in it.
    """
    boxes = {box.name: box for box in picture.boxes}
    attributes = {
        "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": f"-1 -1 {picture.width + 2:g} {picture.height + 2:g}",  # lines at its edge have a width
        "width": f"{picture.width + 2:g}",
        "role": "img",
        "aria-label": _in_words(picture),
        "style": "max-width:100%;height:auto",
        "font-family": "system-ui,sans-serif",
        "font-size": "12",
        "fill": "currentColor",
    }
    parts = [f"<svg {_attributes(attributes)}>"]
    parts += [_edge(edge) for edge in picture.edges]
    parts += [_source(source, boxes[source.name]) for source in picture.sources if source.name in boxes]
    parts += [_unit(unit, boxes[unit.name], picture) for unit in picture.units if unit.name in boxes]
    return "".join([*parts, "</svg>"])


def _attributes(values: Mapping[str, str]) -> str:
    return " ".join(f'{name}="{escape(value)}"' for name, value in values.items())


def _in_words(picture: Picture) -> str:
    names = [*(source.name for source in picture.sources), *(unit.name for unit in picture.units)]
    return f"A dataflow of {', '.join(names)}; its sinks are {', '.join(picture.sinks) or 'none'}"


def _source(source: SourceBox, box: DrawnBox) -> str:
    lines = [_text(box, 0, source.name, bold=True), _text(box, 1, source.connector)]
    return _box(box, box.height / 2, source.name, lines)


def _unit(unit: UnitBox, box: DrawnBox, picture: Picture) -> str:
    """Return a card: the names, what they do, the policy, and a row for each sink."""
    kind = unit.policy.partition("(")[0]
    lines = [
        _text(box, 0, ", ".join(unit.executes), bold=True),
        _text(box, 1, ", ".join(unit.operators)),
        _text(box, 2, f"{SIGNS.get(kind, '·')} {unit.policy}"),
    ]
    for number, sink in enumerate(unit.sinks):
        delivery = "exactly once" if picture.sinks[sink].exactly_once else "at least once"
        lines.append(_text(box, 3 + number, f"→ {sink} · {delivery}", ink=BLUE))
    return _box(box, 8, unit.name, lines)


def _box(box: DrawnBox, radius: float, name: str, lines: list[str]) -> str:
    shape = (
        f'<rect x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{box.height:g}" rx="{radius:g}" '
        f'fill="{BLUE}" fill-opacity="0.08" stroke="{BLUE}"/>'
    )
    return f"<g><title>{escape(name)}</title>{shape}{''.join(lines)}</g>"


def _text(box: DrawnBox, line: int, text: str, *, bold: bool = False, ink: str = "") -> str:
    most = TITLE_LETTERS if bold else LINE_LETTERS
    shown = text if len(text) <= most else f"{text[: most - 1]}…"
    style = ' font-weight="600" font-size="13"' if bold else ""
    colour = f' fill="{ink}"' if ink else ""
    return f'<text x="{box.x + 16:g}" y="{box.y + 26 + LINE * line:g}"{style}{colour}>{escape(shown)}</text>'


def _edge(edge: DrawnEdge) -> str:
    (x, y), *others = edge.way
    path = [f"M{x:g},{y:g}"]
    for to_x, to_y in others:
        middle = (x + to_x) / 2
        path.append(f"C{middle:g},{y:g} {middle:g},{to_y:g} {to_x:g},{to_y:g}")
        x, y = to_x, to_y
    dots = ' stroke-dasharray="2 4"' if edge.table else ""
    tip = f'<path d="M{x:g},{y:g}l-7,-4v8z" fill="{BLUE}"/>'
    return f'<path d="{"".join(path)}" fill="none" stroke="{BLUE}" stroke-width="1.5"{dots}/>{tip}'
