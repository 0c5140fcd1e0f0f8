"""A source of pushed rows that replace one another, beside a dictionary of the rows that hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from boatlift.connectors.push.compacted import numbered
from boatlift.dataflow import Upserts
from boatlift.storage.input_objects import rows_in
from support.push.source import Source
from support.waiting import until

UPSERTS = Upserts(("id",), order="_pushed", deletes="_deleted")

Held = dict[int, str | None]


class Life:
    """A life of a source whose rows have a key, beside a dictionary of the rows that hold."""

    def __init__(self, store: Any, token: int = 1, before: Life | None = None, *, keyed: bool = False) -> None:
        self._keyed = keyed
        self.held: Held = {} if before is None else before.held
        self.tried: tuple[list[tuple[int, str | None]], tuple[int, ...]] = ([], ()) if before is None else before.tried
        self.keys: list[str] = [] if before is None else before.keys
        self.stable: Any = None if before is None else before.stable
        self.cursor: Any = None if before is None else before.cursor
        self.source = Source(
            Path(), token, store, keeps_all=True, upserts=UPSERTS, limit=10**6, stable=self.stable, cursor=self.cursor
        )
        self.stable, self.cursor = self.stable or self.source.start(), self.cursor or self.source.start()

    def push(self, rows: list[tuple[int, str | None]], *deleted: int) -> None:
        """Push rows, and then deletions, and take a step of them."""
        given = [{"id": key, "item": item} for key, item in rows] + [{"id": key, "_deleted": True} for key in deleted]
        self.tried = rows, deleted
        key = f"{len(self.keys)} of {self.source.log.claims[-1]}" if self._keyed else None
        self.source.push(given, key, 0)
        self.keys += [key] if key else []
        assert self.take()

    def take(self) -> bool:
        """Take a step of the rows that were pushed last, if they are there."""
        self.position = self.source.next(self.cursor)
        if self.position is None:
            return False
        self.cursor = self.source.advance(self.cursor, self.position)
        rows, deleted = self.tried
        self.held.update(rows)
        for key in deleted:
            self.held.pop(key, None)
        return True

    def free(self) -> None:
        """Let no failure need what was pushed so far; wait for the integral of it, if it is worth its bytes."""
        self.stable = self.cursor
        self.source.acknowledge(self.position)
        until(lambda: self.source._recorder.failure or self.is_settled)  # type: ignore[union-attr]
        if self.source._recorder.failure:  # type: ignore[union-attr]
            raise self.source._recorder.failure  # type: ignore[union-attr]

    @property
    def is_settled(self) -> bool:
        log, made = self.source.log, self.source._recorder._compacted  # type: ignore[union-attr]
        assert made is not None
        return log.is_freed(self.cursor["last"]) and made._thread is None and log.replaceable() is None

    def everything(self) -> Held:
        """Return the rows that hold, as a batch finds them that reads the whole log."""
        self.source.verify_everything(self.cursor)
        rows = [
            row
            for path, _ in self.source.log.files_up_to(self.cursor["last"])
            for batch in numbered(*rows_in(path))
            for row in batch.to_pylist()
        ]
        newest = {row["id"]: row for row in sorted(rows, key=lambda row: row["_pushed"])}
        return {key: row["item"] for key, row in newest.items() if not row["_deleted"]}

    def check(self) -> None:
        assert self.everything() == self.held
        known = [self.source.pushed(key) for key in self.keys]
        assert all(known)

    def close(self) -> None:
        self.source.close()
