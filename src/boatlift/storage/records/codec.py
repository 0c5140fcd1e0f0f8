"""The bytes of a durable object: framed, versioned, checksummed, and carrying its own identity.

`docs/formats/log.md` describes them. The frame is the same in every format version, so that any version of Boatlift
can tell a damaged object from a newer one; what the version describes is the payload.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import chain
from typing import Annotated, TypeVar

import msgspec
import xxhash

from boatlift.errors import DataError
from boatlift.storage.records.damage import RESTORE
from boatlift.storage.records.records import Milliseconds, Record
from boatlift.storage.records.well_formed import fault_of

__all__ = [
    "FORMAT_VERSION",
    "Header",
    "StoreIdentity",
    "decode_group",
    "decode_identity",
    "encode_group",
    "encode_identity",
]
__all__ += ["InputObject", "Push", "checksum_of", "decode_input", "encode_input", "version_of"]

FORMAT_VERSION = 2

_MAGIC = b"BLFT"
_PREFIX = struct.Struct("<4sHcxQ")  # magic, format version, kind, zero, length of the payload
_CHECKSUM_BYTES = 16
_GROUP = b"G"
_IDENTITY = b"I"
_INPUT = b"P"

_Number = Annotated[int, msgspec.Meta(ge=0, lt=10**12)]
"""Of an object: its name has twelve digits."""
_Count = Annotated[int, msgspec.Meta(ge=0)]

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
        at: When it was written, in milliseconds since 1970 by the writer's clock, for people; 0 if unknown.
    """

    dataflow: str
    number: _Number
    token: _Number
    predecessor: _Number
    previous: bytes
    manifest: _Number
    at: Milliseconds = 0


class StoreIdentity(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Whose store this is, which store, and which of the identity objects this one is.

    Attributes:
        dataflow: The dataflow's name.
        role: The name of this object.
        store: The store's id: 32 hex digits, drawn when the store was made; its copies have it too.
    """

    dataflow: str
    role: str
    store: str


class Push(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What an input log remembers of rows that were handed over together.

    Attributes:
        key: By which whoever handed them over knows them again; empty for none.
        rows: How many.
        digest: Of the rows: the same key with others is refused.
        at: When, in milliseconds since 1970.
        number: Of the object that holds, or held, the rows.
    """

    key: str
    rows: _Count
    digest: bytes
    at: int
    number: _Number = 0


class InputObject(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An object of an input log.

    Attributes:
        store, source, number: What its name says, and of which store.
        token: The owner that wrote it.
        base: How many rows were ever pushed before it.
        memo: The number of the newest memo up to and including this object; 0 for none.
        kind: `claim`, `memo`, `rows`, or `keys` of rows that are not kept.
        claims: Of a claim or memo: the numbers of all claims up to it.
        freed: Of a memo: up to here all objects but claims are gone, or may go.
        pushes: Of rows: those it holds; of a memo: all that have keys; of keys: whose they are.
        rows: All rows of the pushes it holds, in order: an Arrow stream.
    """

    store: str
    source: str
    number: _Number
    token: _Number
    base: _Count
    memo: _Number
    kind: Annotated[str, msgspec.Meta(pattern="^(claim|memo|rows|keys)$")]
    claims: tuple[_Number, ...] = ()
    freed: _Number = 0
    pushes: tuple[Push, ...] = ()
    rows: bytes = b""

    @property
    def count(self) -> int:
        """How many rows it holds."""
        return sum(push.rows for push in self.pushes) if self.kind == "rows" else 0


_encoder = msgspec.msgpack.Encoder()
_groups = msgspec.msgpack.Decoder(tuple[Header, tuple[Record, ...]])
_identities = msgspec.msgpack.Decoder(StoreIdentity)
_inputs = msgspec.msgpack.Decoder(InputObject)


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
    header, records = _decoded(_groups, _payload(content, name, _GROUP), name)
    fault = next(filter(None, map(fault_of, records)), None)
    if fault is not None:
        raise _corrupt(name, f"holds what no Boatlift writes: {fault}")
    return header, records


def encode_identity(identity: StoreIdentity) -> bytes:
    """Gives the bytes of an identity object."""
    return _framed(_IDENTITY, _encoder.encode(identity))


def decode_identity(content: bytes, name: str) -> StoreIdentity:
    """Reads an identity object; see `decode_group`."""
    return _decoded(_identities, _payload(content, name, _IDENTITY), name)


def encode_input(made: InputObject) -> bytes:
    """Gives the bytes of an object of an input log."""
    return _framed(_INPUT, _encoder.encode(made))


def decode_input(content: bytes, name: str) -> InputObject:
    """Reads an object of an input log; see `decode_group`."""
    found = _decoded(_inputs, _payload(content, name, _INPUT), name)
    named = chain((found.memo, found.freed), found.claims, (push.number for push in found.pushes))
    if any(number > found.number for number in named):
        raise _corrupt(name, "names objects that come after it")
    return found


def checksum_of(content: bytes) -> bytes:
    """Gives the checksum that an object carries: 16 bytes, by which the next object names it."""
    return content[-_CHECKSUM_BYTES:]


def version_of(content: bytes) -> int:
    """Return the format version of an object that can be decoded."""
    return int(_PREFIX.unpack_from(content)[1])


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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _corrupt(name, f"holds records that cannot be read ({error})") from error


def _corrupt(name: str, how: str) -> DataError:
    return DataError("CORRUPT", f"{name} {how}: {RESTORE}")
