"""Figure 1, as it is drawn: batch and database fail alone, all is killed, and answers stay exactly once."""

from __future__ import annotations

import csv
import json
import os
import socket
import sqlite3
import threading
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from boatlift.storage.journal import JournalReader
from boatlift.storage.local import LocalStore
from support.commands import begun
from support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.crash]

EXAMPLES = Path(__file__).parents[2] / "examples"

MINE = """
from pathlib import Path

import answers
from pyspark.sql import functions as F

HERE = str(Path.cwd())

def breakable(part, function):
    path = HERE + "/broken-" + part

    def fails(value):
        if Path(path).exists():
            Path(path + "-seen").touch()
            raise ConnectionError(part + " is broken")
        return value

    return lambda df: function(df.withColumn("origin", F.udf(fails, "string")("origin")))

answers.expected = breakable("batch", answers.expected)
from figure1 import flow
"""


DYING = """
import os
import signal
from pathlib import Path

import answers
from pyspark.sql import functions as F

from boatlift.api.streams import Stream

HERE = str(Path.cwd())

def dying(part, function):
    path = HERE + "/kill-" + part

    def dies(value):
        if Path(path).exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    def body(*frames):
        return function(*frames[:-1], frames[-1].withColumn("origin", F.udf(dies, "string")("origin")))

    return body

def of(make, name):
    def made(self, name, function, **options):
        return make(self, name, dying(name, function), **{**options, "deterministic": True})
    return made

for name in ("transform", "recompute", "iterate"):
    setattr(Stream, name, of(getattr(Stream, name), name))

from figure1 import flow
"""


UNITS = {"hops": "hops", "fits": "fits", "legs": "distinct_legs", "answered": "answered"}
"""The parts whose functions kill their workers, each with the unit that executes it: none but this fails."""


class Users:
    """Users that ask until they are answered, and note all answers to a question."""

    def __init__(self, folder: Path, port: int) -> None:
        self.url, self.folder = f"http://127.0.0.1:{port}/questions", folder
        self.answers: defaultdict[str, set[str]] = defaultdict(set)
        self.asked: dict[str, dict[str, Any]] = {}
        self.over = threading.Event()

    def ask(self, key: str, flight: dict[str, str]) -> dict[str, Any]:
        question = {"origin": flight["origin"], "dest": flight["dest"], "carrier": flight["carrier"], "month": 1}
        self.asked[key] = question
        request = urllib.request.Request(self.url, json.dumps(question).encode(), {"Idempotency-Key": key})
        while not self.over.is_set():
            try:
                with urllib.request.urlopen(request, timeout=60) as response:
                    if response.status == 200:
                        said = response.read().decode()
                        self.answers[key].add(said)
                        found: dict[str, Any] = json.loads(said)
                        return found
            except (OSError, ValueError):  # the process is dead, dies, or begins
                self.over.wait(0.05)
        raise AssertionError("it is over")

    def counted(self) -> Counter[str]:
        with closing(sqlite3.connect(self.folder / "statistics.db")) as database:
            return Counter(dict(database.execute("SELECT carrier, asked FROM statistics")))


def fewest(flights: list[dict[str, str]], begin: str) -> dict[str, int]:
    """Return the fewest flights from an airport to each other one, in plain Python."""
    beside: defaultdict[str, set[str]] = defaultdict(set)
    for each in flights:
        beside[each["origin"]].add(each["dest"])
        beside[each["dest"]].add(each["origin"])
    found, last = {begin: 0}, [begin]
    while last:
        onward = {there: found[here] + 1 for here in last for there in beside[here] if there not in found}
        found |= onward
        last = list(onward)
    return found


def failures(store: Path) -> set[str]:
    """Return the units whose failures are in the journal of a store."""
    reader = JournalReader(LocalStore.open(store, create=False))
    reader.catch_up()
    return {each.who for each in reader.events if each.kind == "failure"}


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Hold a database, so that its sink fails alone."""
    with closing(sqlite3.connect(database)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        yield
        holder.rollback()


def test_answers_stay_exactly_once_while_parts_fail_alone_and_all_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from cut_flights import cut

    cut(tmp_path / "all")
    weeks = sorted((tmp_path / "all").glob("*.csv"))[:6]
    flights = [row for week in weeks for row in csv.DictReader(week.open()) if row["arr_delay"] != "NA"]
    (tmp_path / "flights").mkdir()
    (tmp_path / "mine.py").write_text(MINE)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES), "LISTEN": f"127.0.0.1:{port}"}
    users, command = Users(tmp_path, port), ("run", "mine:flow", "--store", "store")

    def come_in(week: Path) -> None:
        week.rename(tmp_path / "flights" / week.name)

    with ThreadPoolExecutor(8) as pool:
        try:
            for kill in range(2):
                with begun(tmp_path, *command, environment=environment):
                    come_in(weeks[2 * kill])
                    waiting = [pool.submit(users.ask, f"{kill}-{n}", flights[37 * n]) for n in range(12)]
                    until(lambda: any(each.done() for each in waiting), seconds=240)  # noqa: B023 - called at once
                    come_in(weeks[2 * kill + 1])
            with begun(tmp_path, *command, environment=environment):
                for each in waiting:
                    each.result(240)
                (tmp_path / "broken-batch").touch()
                for week in weeks[4:]:
                    come_in(week)
                until((tmp_path / "broken-batch-seen").exists)
                for n in range(4):
                    users.ask(f"beside a broken batch {n}", flights[n])
                (tmp_path / "broken-batch").unlink()
                with locked(tmp_path / "statistics.db"):
                    for n in range(4):
                        users.ask(f"beside a database that is held {n}", flights[n])
                far = fewest(flights, "JFK")
                there = max(far, key=lambda airport: (far[airport], airport))
                probe = {"origin": "JFK", "dest": there, "carrier": "AA"}
                until(lambda: users.ask(f"way {len(users.asked)}", probe)["way_flights"] == far[there], seconds=240)
                fit = flights[0]
                until(lambda: users.ask(f"fit {len(users.asked)}", fit)["fit_median"] is not None, seconds=240)
                expected = Counter(question["carrier"] for question in users.asked.values())
                until(lambda: users.counted() == expected, seconds=60)
                for key, question in list(users.asked.items()):
                    users.ask(key, question)
                assert users.counted() == expected, "an answer that is given again is not counted again"
        finally:
            users.over.set()
    assert {key: len(each) for key, each in users.answers.items()} == dict.fromkeys(users.asked, 1)


def test_each_part_fails_alone_when_its_process_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries, the batch, the loop, and the records before both: a worker in the midst of the part's own step dies."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from cut_flights import cut

    cut(tmp_path / "all")
    weeks = sorted((tmp_path / "all").glob("*.csv"))[:8]
    (tmp_path / "flights").mkdir()
    (tmp_path / "mine.py").write_text(DYING)
    flights = [row for row in csv.DictReader(weeks[0].open()) if row["arr_delay"] != "NA"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES), "LISTEN": f"127.0.0.1:{port}"}
    users, came, told = Users(tmp_path, port), iter(weeks), set[str]()
    flown: list[dict[str, str]] = []

    def come_in() -> None:
        week = next(came)
        flown.extend(row for row in csv.DictReader(week.open()) if row["arr_delay"] != "NA")
        week.rename(tmp_path / "flights" / week.name)

    try:
        with (
            begun(tmp_path, "run", "mine:flow", "--store", "store", environment=environment),
            ThreadPoolExecutor(1) as pool,
        ):
            come_in()
            users.ask("the first", flights[0])
            for part, unit in UNITS.items():
                (tmp_path / f"kill-{part}").touch()
                come_in()
                again = pool.submit(users.ask, f"one that waits for {part}", flights[0])
                fresh = until(lambda: failures(tmp_path / "store") - told)  # noqa: B023 - called at once
                (tmp_path / f"kill-{part}").unlink()
                assert fresh == {unit}
                told |= fresh
                again.result(240)
            far = fewest(flown, "JFK")
            there = max(far, key=lambda airport: (far[airport], airport))
            probe = {"origin": "JFK", "dest": there, "carrier": "AA"}
            until(lambda: users.ask(f"way {len(users.asked)}", probe)["way_flights"] == far[there], seconds=240)
            until(lambda: users.ask(f"fit {len(users.asked)}", flights[0])["fit_median"] is not None, seconds=240)
            expected = Counter(question["carrier"] for question in users.asked.values())
            until(lambda: users.counted() == expected, seconds=60)
    finally:
        users.over.set()
    assert {key: len(each) for key, each in users.answers.items()} == dict.fromkeys(users.asked, 1)
