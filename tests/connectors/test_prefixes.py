"""What was taken of a file that grows: lines that end, and a proof of all bytes before them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boatlift.connectors.files.follow import unchanged
from boatlift.connectors.files.follow.unchanged import NOTHING, Prefix, end_of_lines, lengthened, prefix_of

PIECES = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b"\n\n", b"defghijk" * 3]), max_size=30)


@given(PIECES, st.integers(1, 40))
def test_lines_end_where_ranges_of_whole_files_do(pieces: list[bytes], most: int) -> None:
    content = b"".join(pieces)
    whole = content[: content.rfind(b"\n") + 1]
    with tempfile.TemporaryFile() as file:
        file.write(content)
        begin, taken = 0, []
        while (end := end_of_lines(file, begin, len(content), most)) > begin:
            taken.append(content[begin:end])
            begin = end
        assert end_of_lines(file, 0, len(content), None) == len(whole)
    assert b"".join(taken) == whole
    assert all(each.endswith(b"\n") for each in taken)
    assert all(len(each) <= most or b"\n" not in each[:-1] for each in taken)


@given(st.integers(0, 400), st.lists(st.integers(0, 400), max_size=6))
def test_a_prefix_depends_on_its_bytes_alone(size: int, cuts: list[int]) -> None:
    content = bytes(n % 251 for n in range(size))
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(unchanged, "BLOCK", 64)
        path = Path(folder) / "a"
        path.write_bytes(content)
        prefix = NOTHING
        with path.open("rb") as file:
            for cut in sorted({min(cut, len(content)) for cut in cuts} | {len(content)}):
                found = lengthened(file, prefix, prefix.end, cut)
                assert found is not None
                prefix = found[0]
        assert prefix == prefix_of(path, len(content)) == Prefix.of(prefix.named())
        for place in range(0, len(content), 11):
            flipped = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
            path.write_bytes(flipped)
            assert prefix_of(path, len(content)) != prefix
            with path.open("rb") as file:
                near = place >= len(content) - 64  # the last block at least is proved at each step
                assert lengthened(file, prefix, prefix.end, prefix.end) is None or not near
