"""`make endurance`: half an hour of pushes and files, the process killed in between, and a table of what it holds.

At the end every row must be in the answers once, and the process must hold in its last life what it held in the life
before, at the same age: memory by kind of process, bytes and files of the store. The first life only fills windows.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from endurance.samples import Sample, headings, sample_of  # noqa: E402 - found by the path above

FOLDER = ROOT / "artifacts" / "endurance"
KEYS = 5_000
ROWS_A_FILE = 400
MOST = 1.25
"""What is held at the end may be so many times what was held at the same age of the life before."""


class Answers:
    """The rows that were given, by key: what the dataflow must have counted in the end."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.totals: Counter[int] = Counter()

    def add(self, key: int, value: int) -> None:
        """Count one row."""
        self.counts[key] += 1
        self.totals[key] += value

    def expected(self) -> set[tuple[int, int, int]]:
        """Return key, count and total of each key."""
        return {(key, n, self.totals[key]) for key, n in self.counts.items()}


class Pushing(threading.Thread):
    """Pushes rows one by one; a push without an answer comes again under its key."""

    def __init__(self, address: str, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._url, self._stop_asked = f"http://{address}/pushes", stop
        self.given = Answers()
        self.count = 0

    def run(self) -> None:
        """Push until told to stop."""
        draw = random.Random(1)
        while not self._stop_asked.is_set():
            number, key, value = self.count, draw.randrange(KEYS), draw.randrange(1000)
            body = f'{{"id": {number}, "k": {key}, "v": {value}}}'.encode()
            while not self._push(body, f"push-{number}"):
                time.sleep(0.5)
            self.given.add(key, value)
            self.count += 1
            self._stop_asked.wait(0.05)

    def _push(self, body: bytes, key: str) -> bool:
        request = urllib.request.Request(self._url, body, {"Idempotency-Key": key}, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=30):
                return True
        except OSError:  # no process listens, or the process was killed before it answered
            return False


class Filing(threading.Thread):
    """Writes a file of rows every second."""

    def __init__(self, folder: Path, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._folder, self._stop_asked = folder, stop
        self.given = Answers()
        self.rows = 0

    def run(self) -> None:
        """Write until told to stop."""
        draw, number = random.Random(2), 0
        while not self._stop_asked.wait(1.0):
            at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
            lines = ["id,k,at,v"]
            for n in range(ROWS_A_FILE):
                key, value = draw.randrange(KEYS), draw.randrange(1000)
                lines.append(f"{self.rows + n},{key},{at},{value}")
                self.given.add(key, value)
            written = self._folder / f".{number:06}.csv"
            written.write_text("\n".join([*lines, ""]))
            written.rename(self._folder / f"{number:06}.csv")
            number, self.rows = number + 1, self.rows + ROWS_A_FILE


def main() -> None:
    """Run, kill, look every minute, and judge."""
    parser = argparse.ArgumentParser(prog="python scripts/endurance", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--lives", type=int, default=3, help="at least 2; the process is killed in between")
    chosen = parser.parse_args()
    if chosen.lives < 2:
        parser.error("--lives: what is held in one life is compared with the life before, so there must be 2")
    shutil.rmtree(FOLDER, ignore_errors=True)
    (FOLDER / "data").mkdir(parents=True)
    address, stop = f"127.0.0.1:{_free_port()}", threading.Event()
    pushing, filing = Pushing(address, stop), Filing(FOLDER / "data", stop)
    pushing.start()
    filing.start()
    began, samples = time.monotonic(), list[Sample]()
    print(headings(), flush=True)
    process: subprocess.Popen[bytes] | None = None
    try:
        for life in range(1, chosen.lives + 1):
            process = _started(address)
            until = began + 60 * chosen.minutes * life / chosen.lives
            while (left := until - time.monotonic()) > 0:
                time.sleep(min(60, left))
                if process.poll() is not None:
                    sys.exit(f"the process has ended with {process.returncode}: see {FOLDER / 'log.txt'}")
                minute = (time.monotonic() - began) / 60
                counts = {"pushed": pushing.count, "filed": filing.rows}
                samples.append(sample_of(process.pid, FOLDER / "store", minute=minute, life=life, **counts))
                print(samples[-1].line(), flush=True)
            if life < chosen.lives:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        stop.set()
        pushing.join()
        filing.join()
        assert process is not None
        _settle(process, {"pushed": pushing.given, "filed": filing.given})
        sys.exit("\n".join(_grown(samples)) or None)
    finally:
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _started(address: str) -> subprocess.Popen[bytes]:
    """Start the dataflow as a session of its own, so that its processes are found and killed together."""
    command = [sys.executable, "-m", "boatlift.console", "run", "flow:flow", "--store", "store", "--quiet"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "scripts" / "endurance"), "ENDURANCE_LISTEN": address}
    log = (FOLDER / "log.txt").open("ab")
    return subprocess.Popen(
        command, cwd=FOLDER, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )


def _settle(process: subprocess.Popen[bytes], given: dict[str, Answers]) -> None:
    """Wait until the answers have every row, stop the dataflow, and compare."""
    until = time.monotonic() + 300
    while time.monotonic() < until and any(_answers(table) != answers.expected() for table, answers in given.items()):
        time.sleep(1)
    process.send_signal(signal.SIGINT)
    process.wait(300)
    for table, answers in given.items():
        found = _answers(table)
        if found != answers.expected():
            sys.exit(f"{table}: {len(found ^ answers.expected())} keys differ from what was given")
        print(f"{table}: {sum(answers.counts.values()):,} rows, each of them once", flush=True)


def _answers(table: str) -> set[tuple[int, int, int]]:
    with sqlite3.connect(FOLDER / "answers.db", timeout=30) as database:
        return set(database.execute(f"SELECT k, n, total FROM {table}"))


def _grown(samples: Sequence[Sample]) -> list[str]:
    """Return what has grown: the end of the last life, over the same age of the life before."""
    lives = samples[-1].life
    before, last = ([sample for sample in samples if sample.life == life] for life in (lives - 1, lives))
    age = min(len(before), len(last)) - 1
    figures: dict[str, Callable[[Sample], float]] = {
        "memory of the driver": lambda sample: sample.driver,
        "memory of the JVM": lambda sample: sample.jvm,
        "memory of the workers": lambda sample: sample.workers,
        "bytes of the store": lambda sample: sample.store + sample.scratch,
        "files of the store": lambda sample: sample.files,
    }
    lines = []
    for name, figure in figures.items():
        ratio = figure(last[age]) / max(figure(before[age]), 1e-9)
        middle = figure(last[len(last) // 2])
        within = figure(last[-1]) / max(middle, 1e-9)
        print(f"{name}: {ratio:.2f} times the life before at that age, {within:.2f} times the middle of its own")
        if max(ratio, within) > MOST:
            lines.append(f"{name} has grown: {ratio:.2f} times, {within:.2f} times within a life")
    return lines


if __name__ == "__main__":
    main()
