"""The table of a file's blocks: it is the same however the file was written, and misses no byte."""

from __future__ import annotations

import numpy as np
import pytest

from boatlift.storage.blocks import BLOCK_BYTES, BlockTable, BlockWriter

LENGTHS = (0, 1, 7, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES, 5 * BLOCK_BYTES + 11)


def table_of(*parts: bytes) -> bytes:
    writer = BlockWriter()
    for part in parts:
        writer.write(part)
    return writer.table(b"12345678", b"abcdefgh" * 2, 3)


@pytest.mark.parametrize("length", LENGTHS)
def test_the_pieces_in_which_a_file_is_written_do_not_matter(length: int) -> None:
    random = np.random.default_rng(length)
    content = random.bytes(length)
    whole = table_of(content)
    for _ in range(20):
        cuts = sorted(random.integers(0, length + 1, 4).tolist())
        parts = [content[a:b] for a, b in zip([0, *cuts], [*cuts, length], strict=True)]
        assert table_of(*parts) == whole
    table = BlockTable.of_tail(whole + b"what follows")
    assert (len(table), table.mark_rows) == (-(-length // BLOCK_BYTES), 3)
    assert (bytes(table.starts), bytes(table.marks)) == (b"12345678", b"abcdefgh" * 2)
    assert list(table.damaged(0, content)) == []


def test_every_damaged_block_is_named() -> None:
    content = bytearray(np.random.default_rng(1).bytes(4 * BLOCK_BYTES + 100))
    table = BlockTable.of_tail(table_of(bytes(content)))
    content[0] ^= 1
    content[3 * BLOCK_BYTES - 1] ^= 128
    content[-1] ^= 4
    assert list(table.damaged(0, content)) == [0, 2, 4]
    assert list(table.damaged(2, content[2 * BLOCK_BYTES :])) == [2, 4]
    assert not table.proves(1, content[: BLOCK_BYTES - 1])


@pytest.mark.parametrize("tail", [b"", b"x" * 100, table_of(b"rows")[:-1], b"Y" + table_of(b"rows")[1:]])
def test_a_tail_without_a_table_is_refused(tail: bytes) -> None:
    with pytest.raises(ValueError, match="no table of checksums"):
        BlockTable.of_tail(tail)
