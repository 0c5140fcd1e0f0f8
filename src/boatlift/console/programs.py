"""The arguments of commands: steps, rows, changes, Spark settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from boatlift.errors import InvalidError


def step_named(step: str) -> tuple[str, int]:
    """Return the processor and the number of a step that is written as on the command line: `clean:7`."""
    processor, _, time = step.rpartition(":")
    if not processor or not time.isdecimal():
        raise InvalidError("BAD_OPTION", f"{step!r} is no step: write processor:number, such as clean:7")
    return processor, int(time)


def skips_named(skips: Iterable[str]) -> tuple[tuple[str, int | str], ...]:
    """Return the values of `--skip`: steps as `clean:7`, and rows as `orders:orders.csv:7`, with a second colon."""
    named: list[tuple[str, int | str]] = []
    for skip in skips:
        source, _, place = skip.partition(":")
        if ":" not in place:
            named.append(step_named(skip))
        elif source and place.rpartition(":")[2].isdecimal():
            named.append((source, place))
        else:
            forms = "source:file:line or source:topic/partition:offset, such as orders:orders.csv:7"
            raise InvalidError("BAD_OPTION", f"{skip!r} is no row: write {forms}")
    return tuple(named)


def modes_named(changes: Iterable[str]) -> dict[str, str]:
    """Return the values of `--change`: processors and modes as `delays=carry`, several with commas between."""
    named = {}
    for change in (part.strip() for each in changes for part in each.split(",")):
        name, sign, mode = change.partition("=")
        if not (name and sign and mode):
            raise InvalidError("BAD_OPTION", f"--change {change} names no mode: write name=mode, such as delays=carry")
        named[name] = mode
    return named


def settings(pairs: Sequence[str]) -> dict[str, str]:
    """Return Spark settings that are written as name=value."""
    read = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign:
            raise InvalidError("BAD_OPTION", f"--conf {pair} is no setting: write name=value")
        read[name] = value
    return read
