"""The records of a log, oldest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from boatlift.storage.log import Log

__all__ = ["LogLine", "log_records"]


class LogLine(msgspec.Struct, frozen=True):
    """A record of the log, and its place.

    Attributes:
        object: The number of the log object that holds it.
        written_at: When that object was written, in milliseconds since 1970; None if it is not known.
        record: The record's tag (docs/formats/log.md).
        fields: The record's fields as JSON values, those at their defaults left out.
    """

    object: int
    written_at: int | None
    record: str
    fields: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return one flat object: the place, the tag, and the record's own fields beside them."""
        return {"object": self.object, "written_at": self.written_at, "record": self.record, **self.fields}


def log_records(log: Log) -> Iterator[LogLine]:
    """Return every record that the log still has.

    Raises:
        DataError: an object of the log cannot be read.
    """
    for group in log.groups():
        for record in group.records:
            fields = msgspec.to_builtins(record)
            yield LogLine(group.header.number, group.header.at or None, fields.pop("type"), fields)
