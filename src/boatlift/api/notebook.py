"""What a notebook shows of a dataflow, a stream and a run: HTML without a script."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from html import escape
from threading import Thread
from types import CodeType
from typing import TYPE_CHECKING, Any

import xxhash

from boatlift.dataflow import plan
from boatlift.dataflow.identity import identity_of
from boatlift.errors import BoatliftError, InvalidError
from boatlift.runtime.graph import division_of
from boatlift.runtime.inspect.drawing import svg_of
from boatlift.runtime.inspect.picture import picture_of
from boatlift.storage.records.records import UNITS

if TYPE_CHECKING:
    from boatlift.api.asked import QueryAnswer
    from boatlift.api.background import Running
    from boatlift.api.dataflow import Dataflow
    from boatlift.api.streams import Stream
    from boatlift.runtime.inspect.status import DataflowStatus

SECONDS = 1.0
"""From one drawing of a run to the next."""


@dataclass(slots=True)
class _Shown:
    """A dataflow that was shown, and the one of the same name that was shown before it."""

    flow: weakref.ref[Dataflow]
    now: Mapping[str, str]
    before: Mapping[str, str]


_SHOWN: dict[str, _Shown] = {}


def flow_html(flow: Dataflow) -> str:
    """Return the picture of a dataflow, and what differs from the dataflow of this name that was shown before it.

    So a cell that is run again says what it has changed. A program that is not complete, or wrong, has the error in
    the place of the picture.
    """
    changed = changes_of(flow)
    note = f"<p>Since the cell ran before: {escape(changed)}.</p>" if changed else ""
    try:
        program = _program_of(flow)
    except BoatliftError as error:
        return error_box(error) + note
    picture = picture_of(program)
    if not picture.boxes:
        note += f"<p>{len(picture.units)} units: show a stream to see what is around it.</p>"
        return f"<p><b>{escape(flow.name)}</b></p>{note}"
    return svg_of(picture) + note


def stream_html(stream: Stream, columns: Mapping[str, str] | None) -> str:
    """Return the part of the picture around a stream, and its columns if they are known."""
    try:
        program = _program_of(stream.dataflow)
        picture = picture_of(program)
        names = {part: unit.name for unit in picture.units for part in unit.executes}
        names |= {source.name: source.name for source in picture.sources}
        around = names.get(stream.name)
        shown = svg_of(picture_of(program, around)) if around else f"<p>No sink gets {escape(stream.name)} yet.</p>"
    except BoatliftError as error:
        shown = error_box(error)
    if columns is None:
        return shown
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(kind)}</td></tr>" for name, kind in columns.items())
    return f"{shown}<table><tr><th>column of {escape(stream.name)}</th><th>type</th></tr>{rows}</table>"


def error_box(error: BaseException) -> str:
    """Return an error with its condition and what to do, as a box."""
    return (
        '<div style="border-left:4px solid #c62828;padding:.4em .8em"><b>'
        f"{escape(type(error).__name__)}</b><br>{escape(str(error))}</div>"
    )


def run_html(status: DataflowStatus | None, said: str, error: BaseException | None) -> str:
    """Return the state of a run, its rates, and its frontiers as a table.

    Args:
        status: None if it cannot be read.
        said: What the run says of itself.
    """
    parts = [f"<p><b>{escape(said)}</b></p>"]
    if error is not None:
        parts.append(error_box(error))
    if status is not None:
        heads = ("", "rows/s", "executed", "in a checkpoint", "stable")
        rows = [
            (name, _rate(status, name), *map(_step, (unit.executed, unit.checkpoint, unit.stable)))
            for name, unit in status.processors.items()
        ]
        sinks = {} if status.activity is None else status.activity.sinks
        visible = ((f"→ {sink}", max(step, sinks.get(sink, -1))) for sink, step in status.sinks.items())
        rows += [(sink, "", _step(step), "", "") for sink, step in visible]
        cells = ("".join(f"<td>{escape(each)}</td>" for each in row) for row in rows)
        body = "".join(f"<tr>{each}</tr>" for each in cells)
        parts.append(f"<table><tr>{''.join(f'<th>{each}</th>' for each in heads)}</tr>{body}</table>")
    return "".join(parts)


def answer_html(answer: QueryAnswer) -> str:
    """Return the rows of an answer as a table, and the step that they show."""
    steps = ", ".join(f"{escape(name)} at step {step}" for name, step in answer.steps.items())
    heads = "".join(f"<th>{escape(name)}</th>" for name in answer.rows.column_names)
    rows = ("".join(f"<td>{escape(str(value))}</td>" for value in row.values()) for row in answer.rows.to_pylist())
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<p>{steps}</p><table><tr>{heads}</tr>{body}</table>"


def _rate(status: DataflowStatus, unit: str) -> str:
    """Return the rows that a unit has taken a second since its run began; a dash if no run says."""
    done = status.activity
    if done is None or unit not in done.units or done.at <= done.began:
        return "–"
    return f"{1000 * done.units[unit].rows / (done.at - done.began):,.0f}"


def _step(number: int) -> str:
    return "–" if number < 0 else f"{number:,}"


def show_until_ended(running: Running, ended: Callable[[float], bool]) -> Thread | None:
    """Display a run in a notebook, and draw it again every second until it has ended.

    Args:
        ended: Waits for so many seconds, and returns whether the run has ended.

    Returns:
        The thread that draws, and ends after the last drawing; None outside a notebook.

    Raises:
        InvalidError: `[MISSING_EXTRA]`.
    """
    try:
        from IPython.display import display
    except ImportError as error:
        raise InvalidError("MISSING_EXTRA", "show() needs IPython: pip install 'boatlift[notebook]'") from error
    shown = display(running, display_id=True)  # type: ignore[no-untyped-call]
    if shown is None:  # no notebook: the text is printed once
        return None

    def follow() -> None:
        while not ended(SECONDS):
            shown.update(running)
        shown.update(running)

    # The context says which cell the display belongs to.
    drawing = Thread(target=partial(copy_context().run, follow), name="boatlift-show", daemon=True)
    drawing.start()
    return drawing


def changes_of(flow: Dataflow) -> str:
    """Return what differs from the dataflow of this name that was shown before, in words; empty for nothing."""
    now, shown = _described(flow), _SHOWN.get(flow.name)
    before: Mapping[str, str]
    if shown is None:
        before = now
    elif shown.flow() is flow:
        before = shown.before
    else:
        before = shown.now
    _SHOWN[flow.name] = _Shown(weakref.ref(flow), now, before)
    parts = {
        "new": [name for name in now if name not in before],
        "gone": [name for name in before if name not in now],
        "changed": [name for name in now if name in before and now[name] != before[name]],
    }
    return "; ".join(f"{what}: {', '.join(names)}" for what, names in parts.items() if names)


def _program_of(flow: Dataflow) -> dict[str, Any]:
    """Return a program as a claim records it, without what only a compiled one has."""
    planned = plan(flow)
    nothing = dict.fromkeys(planned.processors, "")
    return {**identity_of(planned, nothing, nothing, {}), UNITS: division_of(planned)}


def _described(flow: Dataflow) -> dict[str, str]:
    return {name: xxhash.xxh3_64_hexdigest(_words(each).encode()) for name, each in flow.processors.items()}


def _words(value: object) -> str:
    """Return a value as text that is equal if the value was written equally."""
    match value:
        case CodeType():
            return f"code({value.co_code!r}, {value.co_names}, {_words(value.co_consts)})"
        case partial():
            return f"partial({_words(value.func)}, {_words(value.args)}, {_words(value.keywords)})"
        case tuple() | list():
            return f"[{', '.join(map(_words, value))}]"
        case dict():
            return f"{{{', '.join(f'{key}: {_words(each)}' for key, each in value.items())}}}"
    if (code := getattr(value, "__code__", None)) is not None:
        cells = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
        return f"function({_words(code)}, {_words(getattr(value, '__defaults__', None))}, {_words(cells)})"
    if callable(describe := getattr(value, "describe", None)) and not is_dataclass(value):
        return f"{type(value).__name__}({describe()})"
    if is_dataclass(value) and not isinstance(value, type):
        held = {field.name: getattr(value, field.name) for field in fields(value)}
        return f"{type(value).__name__}({_words(held)})"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
