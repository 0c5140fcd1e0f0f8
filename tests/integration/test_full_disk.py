"""A disk that is really full, under the store or under the sinks, at whatever they write next."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from integration.test_paused_process import TESTS, results

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FAILURE = {"store": "STORE_FAILED", "sinks": "SINK_FAILED"}
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


def can_mount() -> bool:
    mount = "mount -t tmpfs boatlift-test /mnt"
    return (
        shutil.which("unshare") is not None
        and not subprocess.run([*NAMESPACE, "sh", "-c", mount], check=False).returncode
    )


def test_when_a_disk_is_full_it_says_so_and_goes_on_when_there_is_space(tmp_path: Path) -> None:
    if not can_mount():
        pytest.skip("this system lets no user mount a small file system, so there is no disk to fill")
    process = subprocess.run(
        [*NAMESPACE, sys.executable, "-m", "support.crash.full_disk", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    told = json.loads(process.stdout.splitlines()[-1])
    largest = max(run["room"] for run in told)
    expected = results(tmp_path / "kept" / f"sinks-{largest}")
    assert len(expected) == 8
    for run in told:
        if run["room"] < largest:
            assert run["first"].startswith(f"[{FAILURE[run['full']]}]"), run
        else:
            assert run["first"] == ""
        assert run["second"] == ""
        assert results(tmp_path / "kept" / run["place"]) == expected
