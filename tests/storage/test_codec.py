"""The frame of durable objects: what goes in comes out, and not one changed byte is believed."""

from __future__ import annotations

import struct

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from boatlift.errors import DataError
from boatlift.storage.codec import (
    FORMAT_VERSION,
    Header,
    Identity,
    checksum_of,
    decode_group,
    decode_identity,
    encode_group,
    encode_identity,
)
from boatlift.storage.records import Admitted, Committed, Record, Stopped
from support.facts import CLAIM, a_snapshot, cut, gave, made, run_of, saved, sequences, stable

HEADER = Header("flow", 7, 3, 2, b"\x01" * 16, 5)
EVERY_KIND: list[Record] = [
    CLAIM,
    made(1),
    gave(1),
    saved(1, run_of(b"x", "runs/x"), run_of(b"y", "runs/y")),
    Committed("table", 1),
    stable({"a": 1, "b": -1}),
    cut({"a": 1}),
    Admitted(),
    Stopped(),
    a_snapshot(),
]


@pytest.mark.parametrize("records", [[], EVERY_KIND, *([record] for record in EVERY_KIND)])
def test_what_goes_in_comes_out(records: list[Record]) -> None:
    assert decode_group(encode_group(HEADER, records), "log/7") == (HEADER, tuple(records))


@given(sequences())
def test_any_sequence_comes_out(records: list[Record]) -> None:
    assert decode_group(encode_group(HEADER, records), "log/7") == (HEADER, tuple(records))


def test_identities_come_out() -> None:
    identity = Identity("flow", "begun", "5" * 32)
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
        decode_group(encode_identity(Identity("flow", "begun", "5" * 32)), "log/7")


WHOLE = b"\x92\x96\xa4flow\x07\x03\x02\xc4\x00\x05\x91\x81\xa4type\xa7stopped"


def reframed(
    version: int, payload: bytes, magic: bytes = b"BLFT", length: int | None = None, kind: bytes = b"G"
) -> bytes:
    """A frame as `docs/formats/log.md` describes it, made without the code under test."""
    body = struct.pack("<4sHcBQ", magic, version, kind, 0, len(payload) if length is None else length) + payload
    return body + xxhash.xxh3_128_digest(body)


def test_a_newer_format_is_told_from_damage() -> None:
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


def test_the_bytes_of_version_2_stay_what_they_are() -> None:
    """A store written today must be read by every later version: change the version if this must change."""
    content = encode_group(Header("flow", 2, 1, 0, b"\x01\x02", 0, 7), [Committed("table", 5), Stopped()])
    assert content.hex() == (
        "424c4654" "0200" "47" "00" "4000000000000000"
        "92" "97" "a4666c6f77" "02" "01" "00" "c4020102" "00" "07" + RECORDS
        + xxhash.xxh3_128_digest(content[:-16]).hex()
    )  # fmt: skip
    assert checksum_of(content) == content[-16:]


def test_what_version_1_has_written_is_read_and_has_no_time_of_day() -> None:
    framed = bytes.fromhex(
        "424c4654" "0100" "47" "00" "3f00000000000000"
        "92" "96" "a4666c6f77" "02" "01" "00" "c4020102" "00" + RECORDS
    )  # fmt: skip
    header = Header("flow", 2, 1, 0, b"\x01\x02", 0, at=0)
    read = decode_group(framed + xxhash.xxh3_128_digest(framed), "log/2")
    assert read == (header, (Committed("table", 5), Stopped()))


def test_a_claim_of_version_1_says_nothing_of_its_process() -> None:
    body = encode_group(HEADER, [CLAIM])
    assert b"process" not in body
    assert decode_group(body, "log/7")[1] == (CLAIM,)
