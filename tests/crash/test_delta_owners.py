"""Owners of a Delta table that follow one another, stopped and killed anywhere, while another program compacts it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from deltalake import DeltaTable

from connectors.conformance import SCHEMA, ordered, rows_of

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

OWNERS = 12

OWNER = """
import sys
from pathlib import Path
from boatlift.connectors import delta
from connectors.conformance import context, put
place, token = Path(sys.argv[1]), int(sys.argv[2])
sink = delta(place)
newest = sink.open(context(token))
step = 0 if newest is None else newest.step + 1
while True:
    put(sink, place.parent / str(token), step)
    print(step, flush=True)
    step += 1
"""

COMPACTION = """
import sys, time
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
while True:
    try:
        DeltaTable(sys.argv[1]).optimize.compact()
    except CommitFailedError:
        pass
    time.sleep(0.02)
"""


def test_each_step_is_there_once_whatever_owners_and_compactions_do(tmp_path: Path) -> None:
    place, draws = tmp_path / "table", random.Random(7)
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])

    def started(program: str, *given: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", program, *map(str, given)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths}
        )
        stack.callback(process.communicate)
        stack.callback(process.kill)
        return process

    fenced = 0
    with ExitStack() as stack:
        older = started(OWNER, place, 1)
        assert older.stdout is not None
        assert older.stdout.readline(), older.stderr
        compaction = started(COMPACTION, place)
        for token in range(2, OWNERS + 2):
            time.sleep(draws.uniform(0.0, 0.3))  # it may be anywhere in a commit
            stops = draws.random() < 0.5
            older.send_signal(signal.SIGSTOP if stops else signal.SIGKILL)
            newer = started(OWNER, place, token)
            assert newer.stdout is not None
            assert newer.stdout.readline(), newer.communicate()[1]
            if stops:
                older.send_signal(signal.SIGCONT)
                assert "[FENCED]" in older.communicate(timeout=60)[1]
                fenced += 1
            older = newer
        assert compaction.poll() is None
    assert fenced
    table = DeltaTable(str(place))
    steps = table.transaction_version("boatlift/flow/out")
    assert steps is not None
    assert steps >= OWNERS
    held = table.to_pyarrow_dataset().to_table().select(SCHEMA.names).to_pylist()
    expected = [row for step in range(steps + 1) for row in rows_of(step)]
    assert ordered(Counter(tuple(row.values()) for row in held).items()) == ordered(Counter(expected).items())
    compacted = sum("OPTIMIZE" in str(each.get("operation")) for each in table.history())
    assert compacted, "a compaction came between"
