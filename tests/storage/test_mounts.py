"""Which file systems are of this machine alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from boatlift.storage.filesystem import is_on_this_machine

MOUNTS = """\
/dev/vda / ext4 rw 0 0
proc /proc proc rw 0 0
server:/plain /mnt/plain nfs4 rw 0 0
server:/données /mnt/données nfs4 rw 0 0
server:/b /mnt/with\\040blank cifs rw 0 0
/dev/vdb /mnt/plain/disk xfs rw 0 0
shared /mnt/shared fuse.sshfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "is_here"),
    [
        ("/out", True),
        ("/mnt/plainly/out", True),
        ("/mnt/plain/out", False),
        ("/mnt/données/out", False),
        ("/mnt/with blank/out", False),
        ("/mnt/plain/disk/out", True),
        ("/mnt/shared/not there yet/out", False),
    ],
)
def test_the_nearest_mount_decides(path: str, is_here: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_bytes", lambda _: MOUNTS.encode())
    assert is_on_this_machine(Path(path)) is is_here


def test_the_folder_of_a_test_is_on_this_machine(tmp_path: Path) -> None:
    assert is_on_this_machine(tmp_path / "out")
