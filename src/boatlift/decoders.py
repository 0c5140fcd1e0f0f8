"""Decoders of msgspec, created at import.

msgspec looks up the fields of a type at its first use. If two threads use it for the first time at once, the process
may die of a segmentation fault. So every type is looked up at import, on one thread.
"""

from __future__ import annotations

from typing import Any

import msgspec


def packed_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Return a decoder of msgpack for a type; call it at import."""
    return msgspec.msgpack.Decoder(kind)


def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return a decoder of JSON for a type; call it at import."""
    return msgspec.json.Decoder(kind)


def look_up(*kinds: Any) -> None:
    """Look up the fields of types for `msgspec.convert`; call it at import."""
    for kind in kinds:
        msgspec.msgpack.Decoder(kind)
