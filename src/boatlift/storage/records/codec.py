"""The bytes of a durable object: framed, versioned, checksummed, and carrying its own identity.

`docs/formats/log.md` and `docs/formats/input-log.md` describe them, field by field. The frame is the same in every
format version, so that any version of Boatlift can tell a damaged object from a newer one; the version is that of the
payload.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Annotated, Any, TypeVar

import msgspec
import xxhash

from boatlift.errors import RESTORE, DataError
from boatlift.storage.records.facts import Fact
from boatlift.storage.records.journal import JournalEntry
from boatlift.storage.records.records import Milliseconds, Record, TakenNames
from boatlift.storage.records.soft_checkpoints import SoftFrame
from boatlift.storage.records.stream import Tail
from boatlift.storage.records.well_formed import fault_of, fault_of_names

FORMAT_VERSION = 11  # the version that is written
OLDEST_VERSION = 3
"""The oldest version that is read: version 2 recorded a program unit by unit. Version 4 added objects of names, 5
compacted segments, 6 packed keys, 7 bad rows, 8 transitions, 9 places in an owner's stream, 10
members that hold it, 11 ends of gathered epochs."""

_MAGIC = b"BLFT"
_PREFIX = struct.Struct("<4sHcxQ")  # magic, format version, kind, zero, length of the payload
_CHECKSUM_BYTES = 16
_GROUP = b"G"
_IDENTITY = b"I"
_INPUT = b"P"
_FACTS = b"F"
_NAMES = b"N"
_PACK_HEAD = b"K"
_BAD_ROWS = b"B"
_SOFT = b"S"
_TAIL = b"T"
_JOURNAL = b"J"

_Number = Annotated[int, msgspec.Meta(ge=0, lt=10**12)]  # the number of an object, which has twelve digits in its name
_Count = Annotated[int, msgspec.Meta(ge=0)]

_T = TypeVar("_T")


class Header(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The identity and place of an object of the log, recorded in the object itself."""

    dataflow: str
    number: _Number
    token: _Number
    predecessor: _Number
    previous: bytes
    manifest: _Number
    at: Milliseconds = 0
    entries: _Count = 0  # of the owner's stream that the log has with this object


class StoreIdentity(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The content of an identity object: the store's dataflow, the object's role, and the store's id."""

    dataflow: str
    role: str
    store: str


class Push(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The record of one push in an input log."""

    key: str
    rows: _Count
    digest: bytes
    at: int  # milliseconds since 1970
    number: _Number = 0  # of the object that holds, or held, the rows


class CompactedPart(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An object with some of the rows of a compacted segment."""

    name: str
    rows: _Count
    size: _Count
    checksum: bytes


class CompactedSegment(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The newest row of each key in a span of an input log, in place of all rows of that span."""

    first: _Number
    last: _Number
    digest: bytes  # the sum of the checksums of the span's objects with rows, modulo 2¹²⁸
    parts: tuple[CompactedPart, ...]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


class PackedKeys(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A pack: an object with keys of pushes that key checkpoints do not repeat."""

    name: str
    keys: _Count
    head: _Count
    checksum: bytes
    newest: int  # time of a push, in milliseconds since 1970


class BadRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A bad row that is set aside."""

    place: str  # its place in the input, as an error names it: file and line, or partition and offset
    dead_letter: str  # a JSON object with the raw input and the reason why it is no row


class PackHead(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The head of a pack."""

    store: str
    source: str
    hashes: bytes
    ends: bytes
    checksums: bytes


class InputObject(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An object of an input log."""

    store: str
    source: str
    number: _Number
    token: _Number
    base: _Count
    key_checkpoint: _Number
    # `memo`: a key checkpoint; `integral`: a part of a compacted segment, with the number of the segment's last object
    kind: Annotated[str, msgspec.Meta(pattern="^(claim|memo|rows|keys|integral)$")]
    claims: tuple[_Number, ...] = ()
    freed: _Number = 0
    pushes: tuple[Push, ...] = ()
    rows: bytes = b""
    compacted: tuple[CompactedSegment, ...] = ()
    packed: tuple[PackedKeys, ...] = ()

    @property
    def count(self) -> int:
        return sum(push.rows for push in self.pushes) if self.kind == "rows" else 0


class SoftHead(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The head of a file of soft checkpoints: what must be the same in the process that adopts it.

    Attributes:
        boot: Identifies the start of the computer; empty if unknown.
        program, environment: As in the claim of the process that wrote it.
    """

    boot: str
    program: dict[str, Any]
    environment: dict[str, Any]


_encoder = msgspec.msgpack.Encoder()
_soft_heads = msgspec.msgpack.Decoder(SoftHead)
_soft_frames = msgspec.msgpack.Decoder(tuple[_Number, tuple[SoftFrame, ...]])
_journal = msgspec.msgpack.Decoder(JournalEntry)
_tails = msgspec.msgpack.Decoder(Tail)
_groups = msgspec.msgpack.Decoder(tuple[Header, tuple[Record, ...]])
_identities = msgspec.msgpack.Decoder(StoreIdentity)
_inputs = msgspec.msgpack.Decoder(InputObject)
_facts = msgspec.msgpack.Decoder(tuple[str, tuple[Fact, ...]])
_pack_heads = msgspec.msgpack.Decoder(PackHead)
_names = msgspec.msgpack.Decoder(tuple[str, str, TakenNames])
_bad_rows = msgspec.msgpack.Decoder(tuple[str, tuple[BadRow, ...]])


def encode_group(header: Header, records: Iterable[Record]) -> bytes:
    """Return the bytes of a group of records."""
    return _framed(_GROUP, _encoder.encode((header, tuple(records))))


def decode_group(content: bytes, name: str) -> tuple[Header, tuple[Record, ...]]:
    """Check the bytes of a group, and return its header and records.

    Raises:
        DataError: `[CORRUPT]` the bytes are not those that were written; `[NEWER_FORMAT]` a newer Boatlift wrote them.
    """
    header, records = _decoded(_groups, _payload(content, name, _GROUP), name)
    _check(name, fault=next(filter(None, map(fault_of, records)), None))
    return header, records


def encode_tail(tail: Tail) -> bytes:
    """Return the bytes of a tail, as a sink keeps them."""
    return _framed(_TAIL, _encoder.encode(tail))


def decode_tail(content: bytes, place: str) -> Tail:
    """Return the tail that a sink kept; see `decode_group`.

    Args:
        place: Of the sink, for errors.
    """
    tail = _decoded(_tails, _payload(content, place, _TAIL), place)
    _check(place, fault=next(filter(None, (fault_of(record) for entry in tail.entries for record in entry)), None))
    return tail


def encode_facts(name: str, facts: Iterable[Fact]) -> bytes:
    """Return the bytes of an object of facts."""
    return _framed(_FACTS, _encoder.encode((name, tuple(facts))))


def decode_facts(content: bytes, name: str) -> tuple[Fact, ...]:
    """Return the facts of an object; see `decode_group`."""
    named, facts = _decoded(_facts, _payload(content, name, _FACTS), name)
    _check(name, named, next(filter(None, map(fault_of, facts)), None))
    return facts


def encode_names(name: str, source: str, names: TakenNames) -> bytes:
    """Return the bytes of an object of names."""
    return _framed(_NAMES, _encoder.encode((name, source, names)))


def decode_names(content: bytes, name: str) -> TakenNames:
    """Return the content of an object of names; see `decode_group`. Its source may have another name since."""
    named, _, names = _decoded(_names, _payload(content, name, _NAMES), name)
    _check(name, named)
    _check(name, fault=fault_of_names(names))
    return names


def encode_bad_rows(name: str, rows: Iterable[BadRow]) -> bytes:
    """Return the bytes of an object of bad rows."""
    return _framed(_BAD_ROWS, _encoder.encode((name, tuple(rows))))


def decode_bad_rows(content: bytes, name: str) -> tuple[BadRow, ...]:
    """Return the bad rows of an object; see `decode_group`."""
    named, rows = _decoded(_bad_rows, _payload(content, name, _BAD_ROWS), name)
    _check(name, named)
    return rows


def encode_identity(identity: StoreIdentity) -> bytes:
    """Return the bytes of an identity object."""
    return _framed(_IDENTITY, _encoder.encode(identity))


def decode_identity(content: bytes, name: str) -> StoreIdentity:
    """Return the content of an identity object; see `decode_group`."""
    return _decoded(_identities, _payload(content, name, _IDENTITY), name)


def encode_input(content: InputObject) -> bytes:
    """Return the bytes of an object of an input log."""
    return _framed(_INPUT, _encoder.encode(content))


def decode_input(content: bytes, name: str) -> InputObject:
    """Return the content of an object of an input log; see `decode_group`."""
    found = _decoded(_inputs, _payload(content, name, _INPUT), name)
    spans = (number for each in found.compacted for number in (each.first, each.last))
    named = chain((found.key_checkpoint, found.freed), found.claims, (push.number for push in found.pushes), spans)
    if any(number > found.number for number in named):
        raise _corrupt(name, "names objects that come after it")
    return found


def encode_pack_head(head: PackHead) -> bytes:
    """Return the bytes of the head of a pack."""
    return _framed(_PACK_HEAD, _encoder.encode(head))


def decode_pack_head(content: bytes, name: str) -> PackHead:
    """Return the head of a pack; see `decode_group`."""
    return _decoded(_pack_heads, _payload(content, name, _PACK_HEAD), name)


def encode_soft_head(head: SoftHead) -> bytes:
    """Return the first bytes of a file of soft checkpoints; equal heads give equal bytes (a tuple is a list)."""
    return _framed(_SOFT, msgspec.msgpack.encode(head, order="deterministic"))


def encode_soft_frames(number: int, frames: Sequence[SoftFrame]) -> bytes:
    """Return the bytes of the frames that go with an object of the log, to be appended to a file."""
    return _framed(_SOFT, _encoder.encode((number, tuple(frames))))


def decode_soft_file(content: bytes, name: str) -> tuple[SoftHead, Iterator[tuple[int, tuple[SoftFrame, ...]]]]:
    """Return the head of a file of soft checkpoints, and its frames up to the first that was not written whole.

    Raises:
        DataError: `[CORRUPT]` there is no whole head; `[NEWER_FORMAT]` a newer Boatlift wrote it.
    """
    parts = _parts_of(content)
    head = _decoded(_soft_heads, _payload(next(parts, b""), name, _SOFT), name)
    return head, (_decoded(_soft_frames, _payload(part, name, _SOFT), name) for part in parts)


def encode_journal(entry: JournalEntry) -> bytes:
    """Return the bytes of an entry, to be appended to a file of the journal."""
    return _framed(_JOURNAL, _encoder.encode(entry))


def decode_journal(content: bytes, name: str) -> Iterator[tuple[int, JournalEntry]]:
    """Yield the entries of a part of a file that were written whole, each with the place of its end in that part.

    Raises:
        DataError: `[CORRUPT]` an entry is not as it was written; `[NEWER_FORMAT]` a newer Boatlift wrote it.
    """
    at = 0
    for part in _parts_of(content):
        at += len(part)
        yield at, _decoded(_journal, _payload(part, name, _JOURNAL), name)


def _parts_of(content: bytes) -> Iterator[bytes]:
    """Yield the framed parts of a file, each of which was written whole."""
    at = 0
    while at + _PREFIX.size <= len(content):
        end = at + _PREFIX.size + _PREFIX.unpack_from(content, at)[3] + _CHECKSUM_BYTES
        if end > len(content):
            return
        yield content[at:end]
        at = end


def checksum_of(content: bytes) -> bytes:
    """Return the checksum at the end of an object: 16 bytes, which the next object of the log repeats."""
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
    if version < OLDEST_VERSION:
        raise DataError(
            "OLDER_FORMAT",
            f"{name} has format {version}, and this version reads from {OLDEST_VERSION} on: keep using the version of "
            "Boatlift that wrote it; or let that version finish its input, and begin with a new store and new sinks",
        )
    if found_kind != kind:
        raise _corrupt(name, f"is of kind {found_kind!r} where {kind!r} belongs")
    return body[_PREFIX.size :]


def _decoded(decoder: msgspec.msgpack.Decoder[_T], payload: memoryview, name: str) -> _T:
    try:
        return decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _corrupt(name, f"holds records that cannot be read ({error})") from error


def _check(name: str, named: str | None = None, fault: str | None = None) -> None:
    """Refuse an object that names itself otherwise, or holds a record with a fault."""
    if named not in (None, name):
        raise _corrupt(name, f"is a copy of {named}")
    if fault is not None:
        raise _corrupt(name, f"holds a record that Boatlift never writes: {fault}")


def _corrupt(name: str, fault: str) -> DataError:
    return DataError("CORRUPT", f"{name} {fault}: {RESTORE}")
