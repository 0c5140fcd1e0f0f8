"""The bytes of a durable object: framed, versioned, checksummed, and carrying its own identity.

`docs/formats/log.md` describes them. The frame is the same in every format version, so that any version of Boatlift
can tell a damaged object from a newer one; what the version describes is the payload.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TypeVar

import msgspec
import xxhash

from boatlift.errors import DataError
from boatlift.storage.records import Record

__all__ = ["FORMAT_VERSION", "Header", "Identity", "decode_group", "decode_identity", "encode_group", "encode_identity"]
__all__ += ["checksum_of"]

FORMAT_VERSION = 1

_MAGIC = b"BLFT"
_PREFIX = struct.Struct("<4sHcxQ")  # magic, format version, kind, zero, length of the payload
_CHECKSUM_BYTES = 16
_GROUP = b"G"
_IDENTITY = b"I"

_T = TypeVar("_T")


class Header(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What an object of the log says about itself and its place.

    Attributes:
        dataflow: The dataflow's name.
        number: Its own number: the one in its name.
        token: The number of the claim of the owner that wrote it; a claim's is its own number.
        predecessor: The token of the owner before that one; 0 for none.
        previous: The checksum of the object before it; empty for the first.
        manifest: The number of the newest manifest up to and including this object; 0 for none.
    """

    dataflow: str
    number: int
    token: int
    predecessor: int
    previous: bytes
    manifest: int


class Identity(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Whose store this is, which store, and which of the identity objects this one is.

    Attributes:
        dataflow: The dataflow's name.
        role: The name of this object.
        store: The store's id: 32 hex digits, drawn when the store was made; its copies have it too.
    """

    dataflow: str
    role: str
    store: str


_encoder = msgspec.msgpack.Encoder()
_groups = msgspec.msgpack.Decoder(tuple[Header, tuple[Record, ...]])
_identities = msgspec.msgpack.Decoder(Identity)


def encode_group(header: Header, records: Iterable[Record]) -> bytes:
    """Gives the bytes of a group of records."""
    return _framed(_GROUP, _encoder.encode((header, tuple(records))))


def decode_group(content: bytes, name: str) -> tuple[Header, tuple[Record, ...]]:
    """Reads a group; nothing is believed before the checksum holds.

    Args:
        content: The whole object.
        name: Its name, for the error.

    Raises:
        DataError: `[CORRUPT]` it is not what was written; `[NEWER_FORMAT]` a newer Boatlift wrote it.
    """
    return _decoded(_groups, _payload(content, name, _GROUP), name)


def encode_identity(identity: Identity) -> bytes:
    """Gives the bytes of an identity object."""
    return _framed(_IDENTITY, _encoder.encode(identity))


def decode_identity(content: bytes, name: str) -> Identity:
    """Reads an identity object; see `decode_group`."""
    return _decoded(_identities, _payload(content, name, _IDENTITY), name)


def checksum_of(content: bytes) -> bytes:
    """Gives the checksum that an object carries: 16 bytes, by which the next object names it."""
    return content[-_CHECKSUM_BYTES:]


def _framed(kind: bytes, payload: bytes) -> bytes:
    body = _PREFIX.pack(_MAGIC, FORMAT_VERSION, kind, len(payload)) + payload
    return body + xxhash.xxh3_128_digest(body)


def _payload(content: bytes, name: str, kind: bytes) -> memoryview:
    if len(content) < _PREFIX.size + _CHECKSUM_BYTES:
        raise _corrupt(name, f"has {len(content)} bytes, fewer than any object")
    body = memoryview(content)[:-_CHECKSUM_BYTES]
    if xxhash.xxh3_128_digest(body) != checksum_of(content):
        raise _corrupt(name, f"fails its checksum over {len(content)} bytes")
    magic, version, found_kind, length = _PREFIX.unpack_from(body)
    if magic != _MAGIC or length != len(body) - _PREFIX.size:
        raise _corrupt(name, "is no object of a Boatlift store")
    if version > FORMAT_VERSION:
        raise DataError(
            "NEWER_FORMAT", f"{name} has format {version}, and this version reads up to {FORMAT_VERSION}: upgrade"
        )
    if found_kind != kind:
        raise _corrupt(name, f"is of kind {found_kind!r} where {kind!r} belongs")
    return body[_PREFIX.size :]


def _decoded(decoder: msgspec.msgpack.Decoder[_T], payload: memoryview, name: str) -> _T:
    try:
        return decoder.decode(payload)
    except msgspec.DecodeError as error:
        raise _corrupt(name, f"holds records that cannot be read ({error})") from error


def _corrupt(name: str, how: str) -> DataError:
    return DataError("CORRUPT", f"{name} {how}: restore it from a copy")
