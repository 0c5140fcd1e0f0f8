"""Bad rows that are set aside in the store, and the streams that others go to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from boatlift.dataflow.identity import processors_of
from boatlift.errors import InvalidError
from boatlift.runtime.inspect.opening import log_at, store_at
from boatlift.storage.bad_rows import KeptBadRow, kept_bad_rows


def rows_set_aside(path: Path, source: str = "") -> Iterator[KeptBadRow]:
    """Yield the bad rows that a store keeps, of one source or of all.

    Raises:
        InvalidError: `[STORE_NOT_FOUND]`.
        DataError: `[CORRUPT]` an object is not as it was written.
    """
    log_at(path)  # a folder that is no store is refused
    yield from kept_bad_rows(store_at(path), source)


def dead_letters_of(path: Path, source: str = "") -> dict[str, str]:
    """Return each source whose bad rows are dead letters, by the name in the program, to their stream.

    Args:
        path: The store.
        source: Only this source; empty: all.

    Raises:
        InvalidError: `[STORE_NOT_FOUND]`; `[BAD_OPTION]` the store's program has no such source.
    """
    log = log_at(path)
    program, begin = log.history.program, "source "
    streams = {
        record.reads[0].removesuffix("_source"): name
        for name, record in processors_of(program).items()
        if record.kind == "bad_rows" and record.keeps_state  # the operator DeadLetters, which counts them
    }
    sources = {key.removeprefix(begin) for key in program if key.startswith(begin)}
    known = sources - {f"{name}_source" for name in streams} | streams.keys()
    if source and source not in known | sources:
        raise InvalidError(
            "BAD_OPTION", f"{log.dataflow} has no source {source}: choose from {', '.join(sorted(known))}"
        )
    return {name: to for name, to in streams.items() if source in ("", name, f"{name}_source")}
