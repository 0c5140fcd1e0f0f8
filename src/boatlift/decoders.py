"""Decoders of msgspec, made when their module is imported.

msgspec looks up the fields of a type when the type is first used. Two threads that use it first at the same moment see
it half looked up, and the process dies of a segmentation fault. So every type is looked up at import, where one thread
is at work.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["json_decoder", "look_up", "packed_decoder"]


def packed_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Return a decoder of msgpack for a type, whose fields are looked up now; to be called at import."""
    return msgspec.msgpack.Decoder(kind)


def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return a decoder of JSON for a type, whose fields are looked up now; to be called at import."""
    return msgspec.json.Decoder(kind)


def look_up(*kinds: Any) -> None:
    """Look up the fields of types that `msgspec.convert` makes; to be called at import."""
    for kind in kinds:
        msgspec.msgpack.Decoder(kind)
