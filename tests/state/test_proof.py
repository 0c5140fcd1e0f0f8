"""Runs are proved block by block: what is read is as it was written, and what is not read costs nothing."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
import xxhash

from boatlift.errors import DataError
from boatlift.kernels.aggregate import AggregateColumn, AggregateKernel, Layout
from boatlift.kernels.aggregate.partials import PartialsCodec
from boatlift.state.arrangement.arranged import arranged, key_hashes
from boatlift.state.arrangement.codec import ArrangementCodec
from boatlift.state.codec import KeyedRows
from boatlift.state.column import Column
from boatlift.state.key_groups import ALL_KEY_GROUPS
from boatlift.state.merge import merge_runs
from boatlift.state.newest import NewestCodec, NewestRows
from boatlift.state.opened import forget_runs, open_run
from boatlift.state.run_file import write_run
from boatlift.state.segment import Segment
from boatlift.storage.blocks import BLOCK_BYTES, BlockTable
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.records import RunRef
from boatlift.storage.verify import verify
from support.rows.keyed_state import run_of, take_step
from support.worlds.facts import CLAIM, made, saved

I64, F64 = pa.int64(), pa.float64()
LAYOUT = Layout(
    (("k", I64),), (AggregateColumn("count_all", None, "n", None, I64), AggregateColumn("sum", "v", "s", F64, F64))
)
CODEC = PartialsCodec(LAYOUT)
KEYS = 100_000


def rows(keys: np.ndarray[Any, Any]) -> pa.RecordBatch:
    hashes = (keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
    return pa.record_batch({"k": pa.array(keys), "_hash": pa.array(hashes), "v": pa.array(keys * 0.1)})


@pytest.fixture
def run(tmp_path: Path) -> RunRef:
    """A run of three record batches and some 400 blocks."""
    forget_runs()
    kernel = AggregateKernel(LAYOUT, "totals")
    step = run_of(take_step(kernel, [rows(np.arange(KEYS))], [], tmp_path / "step", time=0))
    opened = open_run(step.name, step, codec=CODEC)
    merged = merge_runs(
        CODEC, [opened], tmp_path / "run", processor="totals", share=ALL_KEY_GROUPS, slice_rows=KEYS // 3 + 1
    )
    assert merged is not None
    return merged


def flip(run: RunRef, place: int) -> None:
    """Flip a bit of a file, which no process has open."""
    forget_runs()
    content = bytearray(Path(run.name).read_bytes())
    content[place] ^= 1 << (place % 8)
    Path(run.name).unlink()
    Path(run.name).write_bytes(content)


def read_whole(run: RunRef) -> None:
    for segment in open_run(run.name, run, codec=CODEC).segments:
        segment.cut(CODEC, 0, len(segment))


def read_one_by_one(run: RunRef, codec: ArrangementCodec, places: np.ndarray[Any, Any]) -> None:
    (segment,) = open_run(run.name, run, codec=codec).segments
    for number in places.tolist():
        segment.take(codec, np.array([number]))


def found_by_verify(run: RunRef, root: Path) -> list[tuple[str, str | None]]:
    """Return what a check of a store finds that has the run in a checkpoint."""
    store = LocalStore.open(root, create=True)
    log = Log.open(store, "proved")
    log.claim(CLAIM)
    store.create("runs/1", Path(run.name).read_bytes())
    log.append([made(0), saved(0, msgspec.structs.replace(run, name="runs/1"))])
    return [(finding.name, finding.condition) for finding in verify(store) if finding.condition]


def covered(run: RunRef) -> int:
    assert run.tail is not None
    return run.size - run.tail


def test_a_flipped_bit_of_any_block_is_found_when_it_is_read(run: RunRef) -> None:
    assert covered(run) > 200 * BLOCK_BYTES
    for begin in range(0, covered(run), BLOCK_BYTES):
        place = min(begin + begin // BLOCK_BYTES, covered(run) - 1)
        flip(run, place)
        with pytest.raises(DataError, match=r"\[CORRUPT\]") as caught:
            read_whole(run)
        assert run.name in caught.value.message
        flip(run, place)
    read_whole(run)


def test_a_flipped_bit_of_the_tail_is_found_when_the_run_is_opened(run: RunRef) -> None:
    for place in [*range(covered(run), covered(run) + 64), *range(covered(run) + 64, run.size, 37), run.size - 1]:
        flip(run, place)
        with pytest.raises(DataError, match=r"\[CORRUPT\]") as caught:
            open_run(run.name, run, codec=CODEC)
        assert run.name in caught.value.message
        flip(run, place)


def test_a_flipped_bit_of_a_head_is_found_when_the_run_is_opened(run: RunRef) -> None:
    table = BlockTable.of_tail(memoryview(Path(run.name).read_bytes())[covered(run) :])
    starts = np.frombuffer(table.starts, "<u8").tolist()
    assert (len(starts), starts[0]) == (3, 0)
    for start in starts:
        for place in (start, start + 4, start + 100):
            flip(run, place)
            with pytest.raises(DataError, match=r"\[CORRUPT\].*another checksum") as caught:
                open_run(run.name, run, codec=CODEC)
            assert run.name in caught.value.message
            flip(run, place)


@pytest.mark.parametrize("part", ["heads", "rows", "checksums", "footer"])
def test_a_check_of_the_store_finds_a_flipped_bit_anywhere(run: RunRef, tmp_path: Path, part: str) -> None:
    assert found_by_verify(run, tmp_path / "whole") == []
    place = {"heads": 40, "rows": covered(run) // 2, "checksums": covered(run) + 48, "footer": run.size - 20}[part]
    flip(run, place)
    assert found_by_verify(run, tmp_path / "store") == [("runs/1", "CORRUPT")]


def test_a_block_that_was_changed_with_its_checksum_is_found(run: RunRef, tmp_path: Path) -> None:
    content = bytearray(Path(run.name).read_bytes())
    number = covered(run) // BLOCK_BYTES // 2
    begin = number * BLOCK_BYTES
    content[begin] ^= 1
    place = content.index(BlockTable.of_tail(memoryview(content)[covered(run) :]).sums, covered(run)) + 8 * number
    content[place : place + 8] = xxhash.xxh3_64_digest(content[begin : begin + BLOCK_BYTES])
    forget_runs()
    Path(run.name).write_bytes(content)
    table = BlockTable.of_tail(memoryview(content)[covered(run) :])
    assert not list(table.damaged(0, memoryview(content)[: covered(run)])), "the table fits the blocks"
    with pytest.raises(DataError, match=r"\[CORRUPT\].*has digest"):
        open_run(run.name, run, codec=CODEC)
    assert found_by_verify(run, tmp_path / "store") == [("runs/1", "CORRUPT")]


@pytest.mark.parametrize("column", ["hash", "key.0", "rows", "sum.0.0"])
def test_a_damaged_block_stops_only_a_step_that_needs_it(run: RunRef, tmp_path: Path, column: str) -> None:
    with pa.memory_map(run.name) as file:
        whole = file.read_buffer()
    batch = pa.ipc.open_file(whole).get_batch(1)
    damaged = len(batch) // 2
    array = batch.column(column)
    width = array.type.bit_width // 8
    place = array.buffers()[1].address - whole.address + damaged * width
    keys = batch.column("key.0").to_numpy()
    first = place - place % BLOCK_BYTES - (place - damaged * width)  # the block's first byte, in the column
    near = range(max(first // width - 2048, 0), (first + BLOCK_BYTES) // width + 2048)
    far = np.setdiff1d(np.arange(KEYS), keys[near.start : near.stop])[:: KEYS // 10]
    needed = int(keys[damaged])
    del batch, array, whole
    flip(run, place)
    kernel = AggregateKernel(LAYOUT, "totals")
    made_ = take_step(kernel, [rows(far)], [run], tmp_path / "next", time=1)
    after = {row["k"]: row["n"] for batch in made_.batches for row in batch.to_pylist() if row["_weight"] == 1}
    assert after == dict.fromkeys(far.tolist(), 2)
    with pytest.raises(DataError, match=r"\[CORRUPT\]"):
        take_step(kernel, [rows(np.array([needed]))], [run], tmp_path / "never", time=1)
    assert found_by_verify(run, tmp_path / "store") == [("runs/1", "CORRUPT")]


def test_a_step_proves_blocks_in_proportion_to_its_keys(
    run: RunRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proved: list[int] = []
    proves = BlockTable.proves

    def counted(self: BlockTable, number: int, block: bytes | memoryview) -> bool:
        proved.append(number)
        return proves(self, number, block)

    monkeypatch.setattr(BlockTable, "proves", counted)
    forget_runs()
    open_run(run.name, run, codec=CODEC)
    heads = len(proved)
    assert heads <= 6, "a head may lie in two blocks"
    kernel = AggregateKernel(LAYOUT, "totals")
    for step in range(2):
        take_step(kernel, [rows(np.array([5, 50_000]))], [run], tmp_path / f"next-{step}", time=1)
    columns = len(pa.ipc.open_file(run.name).schema)
    assert len(proved) - heads <= 2 * 2 * 3 * (columns + 1), "two keys, in three batches, of all columns two blocks"
    assert len(set(proved)) == len(proved), "a block is proved once"


def test_opening_reads_no_row_whatever_the_columns_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags and keys with NULLs have to be unpacked, and columns that came later be filled in: all that waits too."""
    keys = (("k", I64), ("flag", pa.bool_()), ("text", pa.string()))
    columns = pa.schema({"a": pa.bool_(), "b": pa.float64()})
    count = 50_000
    number = np.arange(count)
    held = KeyedRows(
        number.astype(np.uint64) << np.uint64(40),
        [
            Column.from_arrow(pa.array(number, I64, mask=number % 3 == 0), I64),
            Column.from_arrow(pa.array(number % 2 == 0), pa.bool_()),
            Column.from_arrow(pa.array([str(each) for each in number]), pa.string()),
        ],
        NewestRows(number, number % 5 > 0, (pa.array(number % 7 == 0), pa.array(number / 2))),
        collides=False,
    )
    old = NewestCodec(keys, columns)
    run = write_run(tmp_path / "run", old, [held], processor="p", times=(0, 0), share=ALL_KEY_GROUPS)
    proved: list[int] = []
    proves = BlockTable.proves

    def counted(self: BlockTable, number: int, block: bytes | memoryview) -> bool:
        proved.append(number)
        return proves(self, number, block)

    monkeypatch.setattr(BlockTable, "proves", counted)
    for codec in (old, NewestCodec(keys, columns.append(pa.field("later", I64)))):
        proved.clear()
        forget_runs()
        (segment,) = open_run(run.name, run, codec=codec).segments
        assert len(proved) == 1, "the head of the one record batch"
        places = np.array([7, 3, 40_000])
        found = segment.take(codec, places)
        assert [each.to_arrow() for each in found.keys] == [each.take(places).to_arrow() for each in held.keys]
        assert found.values.times.tolist() == places.tolist()
        assert found.values.present.tolist() == [True, True, False]
        assert [each.to_pylist() for each in found.values.columns[:2]] == [[True, False, False], [3.5, 1.5, 20_000.0]]
        assert all(each.null_count == len(places) for each in found.values.columns[2:])
        assert len(proved) < 30


@pytest.mark.parametrize("hashes", [1 << 63, 3000, 5, 1])
def test_what_is_read_of_a_mapped_run_is_what_was_written(tmp_path: Path, hashes: int) -> None:
    """Many columns of all shapes, read at random places; many rows with one hash, across marks."""
    random = np.random.default_rng(hashes)
    count = 6000
    schema = pa.schema(
        {
            "number": I64,
            "flag": pa.bool_(),
            "text": pa.string(),
            "bytes": pa.large_binary(),
            "money": pa.decimal128(20, 2),
            "list": pa.list_(pa.int32()),
            "struct": pa.struct({"a": pa.string(), "b": pa.float64()}),
            "nothing": pa.null(),
        }
    )
    made_ = [
        {
            "number": None if i % 11 == 0 else i,
            "flag": None if i % 7 == 0 else i % 3 == 0,
            "text": None if i % 13 == 0 else "t" * (i % 40),
            "bytes": b"b" * (i % 9),
            "money": Decimal(i) / 100,
            "list": None if i % 5 == 0 else list(range(i % 4)),
            "struct": {"a": str(i), "b": i / 2},
            "nothing": None,
        }
        for i in range(count)
    ]
    batch = pa.RecordBatch.from_pylist(made_, schema)
    codec = ArrangementCodec(schema)
    own = key_hashes([pa.array(random.integers(0, hashes, count))], count)
    held = arranged(codec, batch.columns, np.ones(count, np.int64), own)
    run = write_run(tmp_path / "run", codec, [held], processor="p", times=(0, 0), share=ALL_KEY_GROUPS)
    plain = Segment(held.hash, held.keys, held.values, held.collides)
    for turn in range(8):
        if turn % 2 == 0:
            forget_runs()
        (mapped,) = open_run(run.name, run, codec=codec).segments
        asked = np.concatenate(
            [
                random.choice(held.hash, 1 + turn * 3),
                random.integers(0, 1 << 63, 3).astype(np.uint64),
                np.array([0, (1 << 64) - 1], np.uint64),
            ]
        )
        asked = np.unique(asked)
        for mine, theirs in zip(mapped.stretches(asked), plain.stretches(asked), strict=True):
            assert mine.tolist() == theirs.tolist()
        assert mapped.places_of(asked).tolist() == plain.places_of(asked).tolist()
        places = random.integers(0, count, 1 + turn * 5)
        mine, theirs = (each.take(codec, places) for each in (mapped, plain))
        assert mine.hash.tolist() == theirs.hash.tolist()
        assert [each.to_arrow() for each in mine.keys] == [each.to_arrow() for each in theirs.keys]
        assert list(mine.values.rows) == list(theirs.values.rows)
        assert mapped.key_values(1)[places].tolist() == plain.key_values(1)[places].tolist()
        begin, end = sorted(random.integers(0, count, 2).tolist())
        mine, theirs = (each.cut(codec, begin, end) for each in (mapped, plain))
        assert list(mine.values.rows) == list(theirs.values.rows)
    content = Path(run.name).read_bytes()
    for begin in range(0, covered(run), BLOCK_BYTES):
        flip(run, begin + 5)
        with pytest.raises(DataError, match=r"\[CORRUPT\]"):
            read_one_by_one(run, codec, random.permutation(count))
        flip(run, begin + 5)
    assert Path(run.name).read_bytes() == content
