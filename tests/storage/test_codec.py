"""The frame of durable objects: what goes in comes out, and not one changed byte is believed."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from boatlift.errors import BoatliftError, DataError
from boatlift.storage.records.codec import (
    FORMAT_VERSION,
    BadRow,
    Header,
    InputObject,
    StoreIdentity,
    checksum_of,
    decode_bad_rows,
    decode_group,
    decode_identity,
    decode_input,
    decode_names,
    encode_bad_rows,
    encode_group,
    encode_identity,
    encode_input,
    encode_names,
)
from boatlift.storage.records.records import Admitted, NamesObject, Override, Record, SinkCommit, Stopped, TakenNames
from boatlift.storage.records.well_formed import MOST_NESTED, fault_of_value
from support.worlds.facts import CLAIM, a_snapshot, cut, gave, made, run_of, saved, sequences, stable

HEADER = Header("flow", 7, 3, 2, b"\x01" * 16, 5)
EVERY_KIND: list[Record] = [
    CLAIM,
    made(1),
    gave(1),
    saved(1, run_of(b"x", "runs/x"), run_of(b"y", "runs/y")),
    SinkCommit("table", 1),
    stable({"a": 1, "b": -1}),
    cut({"a": 1}),
    Admitted(),
    Override("set_aside", "rows", 0, "row 7 is kept", place="a.csv:7"),
    Stopped(),
    a_snapshot(),
]


@pytest.mark.parametrize("records", [[], EVERY_KIND, *([record] for record in EVERY_KIND)])
def test_what_goes_in_comes_out(records: list[Record]) -> None:
    assert decode_group(encode_group(HEADER, records), "log/7") == (HEADER, tuple(records))


@given(sequences())
def test_any_sequence_comes_out(records: list[Record]) -> None:
    assert decode_group(encode_group(HEADER, records), "log/7") == (HEADER, tuple(records))


def test_bad_rows_come_out_and_no_copy_is_believed() -> None:
    rows = (BadRow("a.csv:7", '{"text": "ä"}'), BadRow("a.csv:9", "{}"))
    content = encode_bad_rows("bad-rows/rows/7", rows)
    assert decode_bad_rows(content, "bad-rows/rows/7") == rows
    with pytest.raises(DataError, match=r"\[CORRUPT\] bad-rows/rows/8 is a copy of bad-rows/rows/7"):
        decode_bad_rows(content, "bad-rows/rows/8")


def test_identities_come_out() -> None:
    identity = StoreIdentity("flow", "begun", "5" * 32)
    assert decode_identity(encode_identity(identity), "begun") == identity


def test_every_flipped_bit_is_found() -> None:
    content = encode_group(HEADER, EVERY_KIND[:6])
    for at in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[at] ^= 1 << bit
            with pytest.raises(DataError, match=r"\[CORRUPT\] log/7 "):
                decode_group(bytes(flipped), "log/7")


def test_every_missing_and_every_added_byte_is_found() -> None:
    content = encode_group(HEADER, EVERY_KIND[:6])
    for at in range(len(content)):
        for changed in (content[:at] + content[at + 1 :], content[:at], content[at:][1:]):
            with pytest.raises(DataError, match=r"\[CORRUPT\] log/7 "):
                decode_group(changed, "log/7")
        for added in (b"\x00", b"\xff", content[at : at + 1]):
            with pytest.raises(DataError, match=r"\[CORRUPT\] log/7 "):
                decode_group(content[:at] + added + content[at:], "log/7")
    with pytest.raises(DataError, match=r"\[CORRUPT\]"):
        decode_group(content + content, "log/7")


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(DataError, match=r"\[CORRUPT\] log/7 "):
        decode_group(content, "log/7")


def test_an_object_of_another_kind_is_refused() -> None:
    with pytest.raises(DataError, match=r"\[CORRUPT\] begun "):
        decode_identity(encode_group(HEADER, []), "begun")
    with pytest.raises(DataError, match=r"\[CORRUPT\] log/7 "):
        decode_group(encode_identity(StoreIdentity("flow", "begun", "5" * 32)), "log/7")


WHOLE = b"\x92\x96\xa4flow\x07\x03\x02\xc4\x00\x05\x91\x81\xa4type\xa7stopped"


def reframed(
    version: int, payload: bytes, magic: bytes = b"BLFT", length: int | None = None, kind: bytes = b"G"
) -> bytes:
    """A frame as `docs/formats/log.md` describes it, made without the code under test."""
    body = struct.pack("<4sHcBQ", magic, version, kind, 0, len(payload) if length is None else length) + payload
    return body + xxhash.xxh3_128_digest(body)


def test_a_newer_format_is_distinguished_from_damage() -> None:
    with pytest.raises(DataError, match=rf"\[NEWER_FORMAT\] log/7 has format {FORMAT_VERSION + 1}"):
        decode_group(reframed(FORMAT_VERSION + 1, b"what nobody knows yet"), "log/7")


def test_a_frame_made_by_hand_is_read() -> None:
    content = reframed(FORMAT_VERSION, WHOLE)
    assert decode_group(content, "log/7") == (Header("flow", 7, 3, 2, b"", 5), (Stopped(),))


@pytest.mark.parametrize(
    "content",
    [
        reframed(FORMAT_VERSION, b"\x92"),
        reframed(FORMAT_VERSION, b"\x92\x96\xa4flow\x07\x03\x02\xc4\x00\x05\x91\x81\xa4type\xa5alien"),
        reframed(FORMAT_VERSION, b"\x92\x96\xa4flow\x07\x03\x02\xc4\x00\x05\x91\x82\xa4type\xa7stopped\xa1x\x01"),
        reframed(FORMAT_VERSION, WHOLE, magic=b"BLFX"),
        reframed(FORMAT_VERSION, WHOLE, length=len(WHOLE) + 1),
        reframed(FORMAT_VERSION, WHOLE, kind=b"I"),
    ],
    ids=["cut", "unknown record", "unknown field", "magic", "length", "kind"],
)
def test_a_whole_frame_around_something_else_is_refused(content: bytes) -> None:
    with pytest.raises(DataError, match=r"\[CORRUPT\] log/7 "):
        decode_group(content, "log/7")


RECORDS = (
    "92" "83" "a474797065" "a9636f6d6d6974746564" "a473696e6b" "a57461626c65" "a474696d65" "05"
    "81" "a474797065" "a773746f70706564"
)  # fmt: skip


def test_the_bytes_of_version_11_stay_what_they_are() -> None:
    """A store written today must be read by every later version: change the version if this must change."""
    content = encode_group(Header("flow", 2, 1, 0, b"\x01\x02", 0, 7, 3), [SinkCommit("table", 5), Stopped()])
    assert content.hex() == (
        "424c4654" "0b00" "47" "00" "4100000000000000"
        "92" "98" "a4666c6f77" "02" "01" "00" "c4020102" "00" "07" "03" + RECORDS
        + xxhash.xxh3_128_digest(content[:-16]).hex()
    )  # fmt: skip
    assert checksum_of(content) == content[-16:]


@pytest.mark.parametrize("version", [3, 4, 5, 6, 7, 8, 9, 10])
def test_an_earlier_version_is_read(version: int) -> None:
    assert decode_group(reframed(version, WHOLE), "log/7") == (Header("flow", 7, 3, 2, b"", 5), (Stopped(),))


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_format_is_refused_with_what_to_do(version: int) -> None:
    with pytest.raises(DataError, match=rf"\[OLDER_FORMAT\] log/7 has format {version}, .* keep using the version"):
        decode_group(reframed(version, WHOLE), "log/7")


def test_a_claim_without_a_process_says_nothing_of_it() -> None:
    body = encode_group(HEADER, [CLAIM])
    assert b"process" not in body
    assert decode_group(body, "log/7")[1] == (CLAIM,)


# --- whole frames around records that Boatlift never writes ---


HEAD = b"\x92" + msgspec.msgpack.encode(HEADER)


def group_of(record: Any) -> bytes:
    """An object of the log with one record, given as builtins or as msgpack."""
    packed = record if isinstance(record, bytes) else msgspec.msgpack.encode(record)
    return reframed(FORMAT_VERSION, HEAD + b"\x91" + packed)


@pytest.mark.parametrize("units", [5, {"clean": 5}, {"clean": {"operators": ["clean"]}}])
def test_a_claim_whose_units_are_none_is_corrupt(units: Any) -> None:
    claim = {"type": "claim", "host": "h", "pid": 1, "at": 0, "program": {"units": units}, "environment": {}}
    with pytest.raises(DataError, match=r"\[CORRUPT\] .*units of a program are none"):
        decode_group(group_of(claim), "log/7")


def determinants(**changed: Any) -> dict[str, Any]:
    return {"type": "chosen", "processor": "numbers", "time": 1, "taken": None, "outcome": None} | changed


def with_raw(record: dict[str, Any], value: bytes) -> bytes:
    """A record in msgpack where `"HERE"` is something that Python cannot hold."""
    packed = msgspec.msgpack.encode(record)
    assert packed.count(b"\xa4HERE") == 1
    return packed.replace(b"\xa4HERE", value)


LISTS, MAPS = b"\x91" * 200_000 + b"\xc0", b"\x81\xa1a" * 200_000 + b"\xc0"
NO_TEXT = b"\xa2\xff\xfe"
HOSTILE: dict[str, Any] = {
    "nested lists": with_raw(determinants(outcome="HERE"), LISTS),
    "nested maps": with_raw(determinants(outcome="HERE"), MAPS),
    "nested a little too deeply": with_raw(determinants(outcome="HERE"), b"\x91" * (MOST_NESTED + 1) + b"\xc0"),
    "no UTF-8": with_raw(determinants(outcome="HERE"), NO_TEXT),
    "a name that is no UTF-8": with_raw(determinants(processor="HERE"), NO_TEXT),
    "a key that is no UTF-8": with_raw(determinants(outcome={"HERE": 1}), NO_TEXT),
    "ext": with_raw(determinants(outcome="HERE"), b"\xd4\x05\x00"),
    "a timestamp": with_raw(determinants(outcome="HERE"), b"\xd6\xff\x00\x00\x00\x01"),
    "a timestamp of no year": with_raw(determinants(outcome="HERE"), b"\xc7\x0c\xff" + b"\xff" * 12),
    "a map with tuples as keys": with_raw(determinants(outcome="HERE"), b"\x81\x92\x01\x02\x03"),
    "a map with numbers as keys": with_raw(determinants(outcome=["HERE"]), b"\x81\x01\x03"),
    "bytes": determinants(outcome=b"x"),
    "a name in markup": determinants(processor="[/bold]"),
    "no name": determinants(processor=""),
    **{f"time {time}": determinants(time=time) for time in (-5, 2**63 - 1, 2**63, 2**64 - 1, 1.5, "x", None)},
    **{
        f"time {time}": determinants(time=time)
        for time in ((), (1,), (1, "x"), ("x",), ("x", -1), ("x", "y"), (0, -2))
    },
    **{f"taken {taken!r}": determinants(taken=taken) for taken in (-1, 2**63 - 1, "", "[/bold]", 0.5)},
    "a frontier of two domains": {"type": "cut", "processors": {"a": (1, ("b", 2))}, "messages": {}},
    "a frontier below nothing": {"type": "cut", "processors": {"a": (-5,)}, "messages": {}},
    "a state without end": {"type": "state", "processor": "a", "frontier": (2**63 - 1,), "content": None},
    "a run that is none": {
        "type": "state", "processor": "a", "frontier": (1,), "content": {"runs": [{"name": "runs/1"}]},
    },
    "runs that are none": {"type": "sent", "edge": "a->b", "time": 1, "message": {"runs": 5}},
    "a message of no time": {
        "type": "taken", "processor": "a", "time": 1, "frontier": (1,), "messages": [["b->a", -1, None]],
        "outcome": None,
    },
    "a step before all": {"type": "committed", "sink": "a", "time": -5},
    "a claim after all years": {"type": "claim", "host": "h", "pid": 1, "at": 2**62, "program": {}, "environment": {}},
    "a fact in a snapshot": {
        "type": "snapshot", "dataflow": "flow", "program": {}, "environment": {}, "cursors": {}, "committed": {},
        "facts": [determinants(time=-5)],
    },
}  # fmt: skip


@pytest.mark.parametrize("record", HOSTILE.values(), ids=HOSTILE)
def test_a_record_that_no_boatlift_writes_is_refused_by_name(record: Any) -> None:
    with pytest.raises(DataError, match=r"\[CORRUPT\] log/7 "):
        decode_group(group_of(record), "log/7")


def test_what_is_refused_is_refused_for_what_is_wrong_with_it() -> None:
    for allowed in (
        determinants(),
        determinants(time=("a->b", 0)),
        determinants(time=(0, -1)),
        determinants(time=10**12),
    ):
        decode_group(group_of(allowed), "log/7")
    most = b"\x91" * MOST_NESTED + b"\xc0"
    _, (record,) = decode_group(group_of(with_raw(determinants(outcome="HERE"), most)), "log/7")
    assert fault_of_value(msgspec.to_builtins(record)["outcome"]) is None


@pytest.mark.parametrize("number", [-1, 10**12])
@pytest.mark.parametrize("field", ["number", "token", "predecessor", "manifest"])
def test_a_header_with_a_number_that_no_object_can_have_is_refused(field: str, number: int) -> None:
    changed = msgspec.structs.replace(HEADER, **{field: number})
    with pytest.raises(DataError, match=r"\[CORRUPT\] log/7 "):
        decode_group(encode_group(changed, []), "log/7")


INPUT = InputObject("5" * 32, "orders", 7, 3, 10, 5, "claim", (1, 7), 4)


@pytest.mark.parametrize(
    "changed",
    [
        {"key_checkpoint": 8},
        {"key_checkpoint": -1},
        {"freed": 10**11},
        {"claims": (1, 9)},
        {"base": -1},
        {"kind": "alien"},
        {"token": -1},
    ],
)
def test_an_object_of_an_input_log_that_no_boatlift_writes_is_refused_by_name(changed: dict[str, Any]) -> None:
    assert decode_input(encode_input(INPUT), "input/7") == INPUT
    with pytest.raises(DataError, match=r"\[CORRUPT\] input/7 "):
        decode_input(encode_input(msgspec.structs.replace(INPUT, **changed)), "input/7")


NAMES = TakenNames((NamesObject("names/000000000001-000000000001", "a" * 32, 4, 1),), ("a", "b"))


@pytest.mark.parametrize("changed", [{"name": "facts/000000000001-000000000001"}, {"name": "names/1"}, {"digest": "x"}])
def test_names_that_no_boatlift_writes_are_refused_by_name(changed: dict[str, Any]) -> None:
    """In an object of names, and in a manifest; so are objects that get higher."""
    (good,) = NAMES.objects
    low = msgspec.structs.replace(good, height=0)
    assert decode_names(encode_names("names/7", "rows", NAMES), "names/7") == NAMES
    for objects in ((msgspec.structs.replace(good, **changed),), (low, good)):
        names = TakenNames(objects)
        with pytest.raises(DataError, match=r"\[CORRUPT\] names/7 "):
            decode_names(encode_names("names/7", "rows", names), "names/7")
        snapshot = msgspec.structs.replace(a_snapshot(), names={"rows": names})
        with pytest.raises(DataError, match=r"\[CORRUPT\] log/7 "):
            decode_group(encode_group(HEADER, [snapshot]), "log/7")


@pytest.mark.parametrize("value", [LISTS, MAPS, NO_TEXT])
@pytest.mark.parametrize(("kind", "decode"), [(b"P", decode_input), (b"I", decode_identity), (b"N", decode_names)])
def test_an_object_with_a_hostile_value_is_refused_by_name(value: bytes, kind: bytes, decode: Any) -> None:
    for packed in (value, b"\x93\xa1f" + value + b"\xa1s", b"\x97" + value * 7):
        with pytest.raises(DataError, match=r"\[CORRUPT\] it "):
            decode(reframed(FORMAT_VERSION, packed, kind=kind), "it")


plain = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=4)
    | st.binary(max_size=4)
)
extensions = st.builds(msgspec.msgpack.Ext, st.integers(-128, 127), st.binary(max_size=12))
values = st.recursive(
    plain | extensions,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(plain | st.tuples(plain), inner, max_size=4),
    max_leaves=12,
)
fields = st.sampled_from([
    "type", "processor", "time", "taken", "outcome", "edge", "message", "frontier", "content", "runs", "sink",
    "processors", "messages", "states", "choices", "cursors", "committed", "facts",
])  # fmt: skip
kinds = st.sampled_from(
    [
        "chosen",
        "ended",
        "sent",
        "result",
        "state",
        "taken",
        "cut",
        "collected",
        "cursor",
        "committed",
        "snapshot",
        "claim",
    ]
)
records = st.builds(lambda kind, rest: {**rest, "type": kind}, kinds, st.dictionaries(fields, values, max_size=6))


@given(values | st.lists(records, max_size=2), st.booleans())
def test_any_value_in_a_whole_frame_is_read_or_refused_by_name(value: Any, headed: bool) -> None:
    payload = msgspec.msgpack.encode(value)
    read_or_refused((HEAD if headed else b"") + payload)


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
    st.binary(max_size=4),
    st.integers(0, 400),
)
def test_any_bytes_in_a_whole_frame_are_read_or_refused_by_name(
    changes: list[tuple[int, int]], added: bytes, at: int
) -> None:
    payload = bytearray(encode_group(HEADER, EVERY_KIND)[16:-16])
    for where, byte in changes:
        payload[where % len(payload)] = byte
    payload[at % len(payload) : at % len(payload)] = added
    read_or_refused(bytes(payload))


def read_or_refused(payload: bytes) -> None:
    decoders = ((b"G", decode_group), (b"I", decode_identity), (b"P", decode_input), (b"N", decode_names))
    for kind, decode in decoders:
        refused = None
        try:
            decode(reframed(FORMAT_VERSION, payload, kind=kind), "log/7")
        except BoatliftError as error:
            refused = str(error)
        assert refused is None or refused.startswith("[CORRUPT] log/7 ")
