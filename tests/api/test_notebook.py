"""What a notebook shows: pictures as SVG, tables, and what a cell that is run again has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import boatlift as bl
from boatlift.api import notebook
from boatlift.api.notebook import changes_of, error_box, flow_html, run_html, stream_html
from boatlift.dataflow import plan
from boatlift.runtime.inspect.drawing import svg_of
from boatlift.runtime.inspect.picture import MOST_UNITS, picture_of
from boatlift.runtime.inspect.status import status_at
from support.any_connector import ANY, NO_ACCOUNT
from support.engine.hosts import crashed
from support.engine.memory_engine import recorded
from support.metrics import large

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(autouse=True)
def _nothing_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "_SHOWN", {})


def made(name: str = "flow", **changed: object) -> bl.Dataflow:
    flow = bl.Dataflow(name)
    rows = flow.source("rows", ANY)
    clean = rows.transform("clean", changed.get("function", lambda df: df.where("a > 1")))  # type: ignore[arg-type]
    clean.sink("all", ANY)
    if changed.get("counted", True):
        clean.group_by("k").agg("sums", ANY, policy=bl.Lazy(every=20)).sink("totals", NO_ACCOUNT)
    return flow


class Tags(HTMLParser):
    """The tags and the texts of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def svg_in(html: str) -> ET.Element:
    return ET.fromstring(html[html.index("<svg") : html.index("</svg>") + 6])


def texts(element: ET.Element) -> list[str]:
    return [each.text or "" for each in element.iter(f"{SVG}text")]


def test_a_picture_has_a_box_for_each_part_where_the_layout_puts_it() -> None:
    picture = picture_of(recorded(plan(made())))
    drawn = svg_in(svg_of(picture))
    boxes = {each.find(f"{SVG}title").text: each.find(f"{SVG}rect") for each in drawn.iter(f"{SVG}g")}  # type: ignore[union-attr]
    assert boxes.keys() == {box.name for box in picture.boxes}
    for box in picture.boxes:
        rect = boxes[box.name]
        assert rect is not None
        assert [float(rect.get(key, "")) for key in ("x", "y", "width", "height")] == [
            box.x, box.y, box.width, box.height,
        ]  # fmt: skip
    shown = texts(drawn)
    assert {"→ all · exactly once", "→ totals · at least once", "◐ Lazy(every=20)"} <= set(shown)
    assert len([each for each in drawn.iter(f"{SVG}path") if each.get("fill") == "none"]) == len(picture.edges)
    assert svg_of(picture) == svg_of(picture_of(recorded(plan(made()))))


def test_it_has_no_script_nothing_from_elsewhere_and_no_colour_of_a_background() -> None:
    html = made()._repr_html_()
    assert set(Tags(html).tags) <= {"svg", "g", "title", "rect", "text", "path"}
    assert html.count("http") == 1
    assert "currentColor" in html
    assert len(html) < 9_000


def test_names_are_text_whatever_they_are() -> None:
    hostile = '"><script>alert(1)</script>'
    program = recorded(plan(made()))
    box = picture_of(program).sources[0].__class__("rows", hostile, {})
    picture = picture_of(program)
    changed = type(picture)([box], *(getattr(picture, name) for name in picture.__struct_fields__[1:]))
    assert hostile[:31] + "…" in texts(svg_in(svg_of(changed))) or hostile in texts(svg_in(svg_of(changed)))
    assert "script" not in Tags(svg_of(changed)).tags
    assert "script" not in Tags(error_box(ValueError(hostile))).tags


def test_a_bundle_has_text_besides(tmp_path: Path) -> None:
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", bl.generator({"k": "id % 3"}, rows_per_step=10))
    rows.sink("kept", bl.parquet(tmp_path / "kept"))
    for shown in (flow, rows):
        bundle = shown._repr_mimebundle_()
        assert bundle.keys() == {"text/plain", "text/html"}
        assert "flow" in bundle["text/plain"]
        assert "→ kept · exactly once" in texts(svg_in(bundle["text/html"]))


def test_a_stream_shows_what_is_around_it_and_its_columns() -> None:
    flow = made()
    stream = flow.source("more", ANY)
    assert "No sink gets more yet." in stream_html(stream, None)
    stream.sink("kept", ANY)
    html = stream_html(stream, {"a": "bigint", "<b>": "string"})
    assert Tags(html).texts[-4:] == ["a", "bigint", "<b>", "string"]
    assert svg_in(html).get("aria-label", "").startswith("A dataflow of")


def test_a_program_that_is_not_complete_says_why() -> None:
    flow = bl.Dataflow("flow")
    flow.source("rows", ANY)
    html = flow._repr_html_()
    assert "[EMPTY_DATAFLOW] flow has no sink" in html
    assert "svg" not in Tags(html).tags


def test_a_large_program_says_how_to_see_a_part() -> None:
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", ANY)
    for n in range(MOST_UNITS + 1):
        last = rows.group_by("k").agg(f"sums{n}", ANY)
        last.sink(f"out{n}", ANY)
    assert f"{MOST_UNITS + 1} units: show a stream to see what is around it." in flow._repr_html_()
    assert f"sums{MOST_UNITS}" in texts(svg_in(stream_html(last, None)))


def test_a_cell_that_is_run_again_says_what_it_has_changed() -> None:
    first = made()
    assert changes_of(first) == ""
    assert changes_of(made()) == "", "the same text is the same program"
    second = made(function=lambda df: df.where("a > 2"), counted=False)
    second.source("more", ANY).sink("kept", ANY)
    said = "new: more, kept; gone: sums, totals; changed: clean"
    assert changes_of(second) == said
    assert f"Since the cell ran before: {said}." in flow_html(second), "the same dataflow has still changed as much"
    assert changes_of(made("other")) == ""
    for more in (made(function=above(5)), made(function=above(6))):
        said = changes_of(more)
    assert said == "changed: clean", "what a function closes over is a part of it"


def above(least: int) -> Callable[[Any], Any]:
    return lambda df: df.where(f"a > {least}")


def test_a_run_shows_its_frontiers_and_a_failed_one_its_error(tmp_path: Path) -> None:
    crashed(tmp_path)
    error = bl.UserCodeError("USER_CODE", "at step 7 of clean, no <number>")
    html = run_html(status_at(tmp_path), "flow failed", error)
    shown = Tags(html).texts
    assert "[USER_CODE] at step 7 of clean, no <number>" in shown
    at = shown.index("sums")
    assert shown[at : at + 5] == ["sums", "–", "6", "3", "–"]
    assert shown[-2:] == ["→ totals", "5"]
    assert run_html(None, "flow runs", None) == "<p><b>flow runs</b></p>"


def test_a_run_shows_its_rates(tmp_path: Path) -> None:
    large(tmp_path, 2)
    status = status_at(tmp_path)
    assert status.activity is not None
    assert "–" in run_html(status, "large runs", None), "no time has passed"


def test_a_run_that_is_shown_outside_of_a_notebook_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    class Shown:
        def __repr__(self) -> str:
            return "<flow runs>"

    threads = threading.active_count()
    notebook.show_until_ended(Shown(), lambda _seconds: False)  # type: ignore[arg-type]
    assert capsys.readouterr().out == "<flow runs>\n"
    assert threading.active_count() == threads
