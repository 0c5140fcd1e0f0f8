"""A call of a connector that lacks an argument, or has one too many, is an error of one sentence."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import pytest

import boatlift as bl
from boatlift.dataflow import Sink, Source

CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = {
    "no table": (bl.sqlite, ("a.db",), {"key": ["k"]}, "bl.sqlite lacks table: write table=…"),
    "no table by name": (bl.sqlite, (), {"path": "a.db", "key": ["k"]}, "bl.sqlite lacks table: write table=…"),
    "nothing": (bl.sqlite, (), {}, "bl.sqlite lacks path, table and key: write path=…, table=…, key=…"),
    "typo": (bl.sqlite, ("a.db",), {"tabel": "t", "key": ["k"]}, "bl.sqlite has no option tabel: write table"),
    "unknown": (
        bl.parquet,
        ("out",),
        {"zzz": 1},
        "bl.parquet has no option zzz: it has path, key, compression, every or rows",
    ),
    "by place": (bl.parquet, ("out", ["k"]), {}, "bl.parquet takes path alone without a name: write the others as"),
    "twice": (bl.parquet, ("out",), {"path": "out"}, "bl.parquet cannot be called so: multiple values for"),
    "files": (bl.files, (), {}, "bl.files lacks path: write path=…"),
    "generator": (bl.generator, ({"n": "id"},), {}, "bl.generator lacks rows_per_step: write rows_per_step=…"),
    "push": (bl.push, (), {}, "bl.push lacks schema: write schema=…"),
    "kafka source": (bl.kafka.source, (), {}, "bl.kafka.source lacks servers: write servers=…"),
    "kafka sink": (bl.kafka.sink, ("a:9092",), {}, "bl.kafka.sink lacks topic: write topic=…"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_missing_or_unknown_argument_is_an_error(call: str) -> None:
    function, args, named, said = CALLS[call]
    with pytest.raises(bl.InvalidError) as raised:
        function(*args, **named)
    assert str(raised.value).startswith(f"[BAD_OPTION] {said}")
    assert isinstance(raised.value, TypeError), "as Python has it"


def test_help_shows_the_options_as_they_are() -> None:
    assert list(signature(bl.sqlite).parameters) == ["path", "table", "key", "unique", "nan", "lock_timeout"]
    assert bl.sqlite.__doc__ is not None


@pytest.mark.parametrize("sink", [bl.parquet("out"), bl.sqlite("a.db", table="t", key=["k"])])
def test_sinks_say_beforehand_what_they_refuse(sink: Sink) -> None:
    assert sink.capabilities.preflight is not None


@pytest.mark.parametrize(
    "source",
    [
        bl.files("in/*.csv", schema="k STRING"),
        bl.files("in/*.csv", schema="k STRING", tail=True),
        bl.kafka.source("127.0.0.1:9", topic="t"),
    ],
    ids=["files", "tail", "kafka"],
)
def test_sources_say_beforehand_what_they_refuse_and_how_much_waits(source: Source) -> None:
    assert source.capabilities.preflight is not None
    assert source.capabilities.waiting is not None


def test_a_type_error_inside_a_connector_stays_one() -> None:
    with pytest.raises(TypeError) as raised:
        bl.parquet(3)  # type: ignore[arg-type]
    assert not isinstance(raised.value, bl.BoatliftError)


def test_unique_is_true_or_false() -> None:
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] unique is 'id': choose True or False"):
        bl.sqlite("out.db", table="t", key=["id"], unique="id")  # type: ignore[arg-type]
