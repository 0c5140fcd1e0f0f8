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


def log_records(log: Log, since: int = 0, processor: str | None = None) -> Iterator[LogLine]:
    """Return the records that the log still has.

    Args:
        log: The log.
        since: Only objects written then or later, in milliseconds since 1970; 0: all.
        processor: Only records that name this processor, alone or at an end of an edge; None: all.

    Raises:
        DataError: an object of the log cannot be read.
    """
    for group in log.groups():
        for record in group.records:
            if group.header.at >= since and (processor is None or _names(record, processor)):
                fields = msgspec.to_builtins(record)
                yield LogLine(group.header.number, group.header.at or None, fields.pop("type"), fields)


def _names(value: Any, processor: str) -> bool:
    match value:
        case str():
            return processor == value or processor in value.split("->")
        case msgspec.Struct():
            return any(_names(getattr(value, field), processor) for field in value.__struct_fields__)
        case dict():
            return any(_names(each, processor) for each in (*value, *value.values()))
        case list() | tuple():
            return any(_names(each, processor) for each in value)
        case _:
            return False
