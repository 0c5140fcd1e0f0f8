"""The laws of at-least-once sinks, one test each: see `Sink`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Protocol

import pytest

from boatlift.dataflow import Delivery, Outcome, Sink, Staged
from connectors.conformance import Row, batch_of, context, rows_of

__all__ = ["AtLeastOnceLaws", "Outside"]


class Outside(Protocol):
    """A receiver, and sinks that deliver to it."""

    def sink(self, parts: int) -> Sink:
        """Return a sink of so many parts."""

    def deliveries(self) -> list[Any]:
        """Return all that was delivered, each with what names it."""

    def rows(self) -> list[Row]:
        """Return the rows of all deliveries."""


def put(sink: Sink, folder: Path, step: int, rows: Sequence[Row], pieces: int = 2) -> Outcome:
    """Hand a step to a sink that is opened already, staged by so many tasks."""
    receipts: list[Staged] = []
    for number in range(pieces):
        part = list(rows)[number::pieces]
        name = f"piece-{step}-{number}-{Random().random()}"
        batches: Iterator[Any] = iter([batch_of(part)] if part else [])
        receipts.append(sink.stager().stage(str(folder), name, number, batches))
    return sink.commit(step, len(rows), f"digest {step}", receipts)


class AtLeastOnceLaws:
    """What `Sink` promises of an at-least-once sink."""

    outside: ClassVar[Callable[[Path], AbstractContextManager[Outside]]]
    """Returns a receiver in a folder, which lasts as long as the context."""

    parts: ClassVar[tuple[int, ...]] = (1, 3)

    def test_it_keeps_no_account_and_opening_it_delivers_nothing(self, tmp_path: Path) -> None:
        with self.outside(tmp_path) as outside:
            sink = outside.sink(1)
            assert sink.delivery is Delivery.AT_LEAST_ONCE
            assert sink.open(context()) is None
            put(sink, tmp_path, 0, rows_of(0))
            assert sink.open(context(2)) is None
            assert list(sink.verify()) == []
            assert len(outside.rows()) == len(rows_of(0))

    def test_a_commit_returns_once_all_rows_are_there(self, tmp_path: Path) -> None:
        for parts in self.parts:
            with self.outside(tmp_path / str(parts)) as outside:
                sink = outside.sink(parts)
                sink.open(context())
                for step in range(3):
                    assert put(sink, tmp_path, step, rows_of(step)) is Outcome.APPENDED
                    wanted = [row for each in range(step + 1) for row in rows_of(each)]
                    assert Counter(outside.rows()) == Counter(wanted)

    @pytest.mark.parametrize("again", range(4))
    def test_a_step_that_comes_again_is_the_same_deliveries(self, tmp_path: Path, again: int) -> None:
        """Whatever the order of its rows, and however many tasks have staged them."""
        for parts in self.parts:
            with self.outside(tmp_path / str(parts)) as outside:
                sink = outside.sink(parts)
                sink.open(context())
                put(sink, tmp_path, 1, rows_of(1))
                first = outside.deliveries()
                shuffled = Random(again).sample(rows_of(1), len(rows_of(1)))
                put(sink, tmp_path, 1, shuffled, pieces=1 + again)
                assert sorted(outside.deliveries()) == sorted(first * 2), "parts are delivered in any order"
                assert len(first) >= parts

    def test_a_step_without_rows_is_no_delivery(self, tmp_path: Path) -> None:
        with self.outside(tmp_path) as outside:
            sink = outside.sink(1)
            sink.open(context())
            assert put(sink, tmp_path, 0, []) is Outcome.APPENDED
            assert outside.deliveries() == []

    def test_a_sink_that_is_closed_can_be_opened_again(self, tmp_path: Path) -> None:
        with self.outside(tmp_path) as outside:
            sink = outside.sink(1)
            sink.open(context())
            sink.close()
            sink.open(context(2))
            put(sink, tmp_path, 0, rows_of(0))
            assert len(outside.rows()) == len(rows_of(0))
