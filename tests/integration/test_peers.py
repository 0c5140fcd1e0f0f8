"""Processes on Spark that die, or lose their links or their store, while standbys hold what the log lacks.

Each result is there once, with the bits of an undisturbed run; what rests on a random choice never becomes another.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from boatlift.processes.warm_jvm import WarmJvm
from boatlift.testing.object_server import ObjectServer
from support.engine.relay import Relay
from support.flow_processes import DoubleProcesses
from support.push.receiver import Receiver, receiving
from support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PROGRAM = """
import json

import boatlift as bl
from boatlift.runtime.peers import owner
from pyspark.sql import functions as F

if relay := os.environ.get("RELAY"):
    own, owner.LOST_SECONDS = owner.OwnerLink.address.fget, 1.0

    def through(link):
        Path("port").write_text(own(link).rpartition(":")[2])
        return relay

    owner.OwnerLink.address = property(through)

RECEIVED = str(Path("received").absolute())  # a worker of a warm JVM runs elsewhere

def receive(rows, step):
    with open(RECEIVED, "a") as file:
        file.write(json.dumps([step, sorted(rows["x"].to_pylist())]) + "\\n")

flow = bl.Dataflow("mine", determinants="peers:DEPTH")
rows = flow.source("rows", bl.files("data/*.csv", schema="k INT, v DOUBLE", max_files_per_step=1))
drawn = rows.transform("drawn", lambda df: df.withColumn("x", (bl.rand("k", "v") * 1000000).cast("long")))
drawn.sink("received", bl.foreach(receive))
rows.group_by("k").agg("sums", F.sum("v").alias("v"), policy=bl.Lazy(every=3)).sink("history", bl.parquet("history"))
"""

DESK = """
named = rows.transform("named", lambda df: df.selectExpr("concat(k, '/', v) AS id", "k", "v"))
named.sink("desk", bl.http_post("URL", rows_per_request=1, key=["id"]))
"""

FILES, ROWS = 12, 5


class Held(DoubleProcesses):
    """Rows with a random column go to a function, sums to a folder."""

    def __init__(self, folder: Path, stack: ExitStack, depth: int, *options: str, more: str = "") -> None:
        text = PROGRAM.replace("DEPTH", str(depth)) + more
        super().__init__(folder, stack, text, *options, rows=ROWS)

    def received(self) -> list[tuple[int, list[int]]]:
        path = self.folder / "received"
        return [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []  # type: ignore[misc]

    def feed(self, files: int) -> None:
        for _ in range(files):
            self.add()
            until(lambda: {number for number, _ in self.received()} == set(range(self.fed)))

    def check(self, undisturbed: list[list[tuple[object, ...]]]) -> None:
        """Each step came, one under way perhaps again, and none with another result."""
        until(lambda: len(self.steps()) == self.fed)
        assert self.bits() == undisturbed[: self.fed]
        came = self.received()
        assert {number for number, _ in came} == set(range(self.fed))
        assert len(dict(came)) == len({(number, tuple(rows)) for number, rows in came})


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, warm_jvm: WarmJvm
) -> Iterator[list[list[tuple[object, ...]]]]:
    with ExitStack() as stack:
        flow = Held(tmp_path_factory.mktemp("undisturbed"), stack, 1)
        for _ in range(FILES):
            flow.add()
        assert flow.run("--available-now", environment=warm_jvm.environment()).wait(240) == 0, flow.said()
        yield flow.bits()


def test_the_owner_and_a_standby_die_at_once_and_then_all_of_them(
    tmp_path: Path, warm_jvm: WarmJvm, undisturbed: list[list[tuple[object, ...]]]
) -> None:
    """At depth 2 the one that is left goes on with what was shown; if none is left, that is said."""
    with ExitStack() as stack:
        flow = Held(tmp_path, stack, 2)
        owner = flow.run(environment=warm_jvm.environment())
        flow.feed(2)
        first, second = flow.standby(), flow.standby()
        flow.wait_for_members(2)
        flow.slow(owner.pid)
        flow.feed(6)
        assert flow.shows_more_than_its_log()
        for process in (owner, first):
            os.kill(process.pid, signal.SIGKILL)
        flow.feed(3)
        assert flow.took_over_what_was_held()
        assert "[MEMBERS_MISSING]" not in flow.said()
        flow.check(undisturbed)

        third = flow.standby()
        fourth = flow.standby()
        flow.wait_for_members(2)
        flow.slow(second.pid)
        flow.feed(4)
        seen = flow.received()
        for process in (second, third, fourth):
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        alone = flow.run("--available-now", environment=warm_jvm.environment())
        assert alone.wait(120) != 0
        assert "[MEMBERS_MISSING]" in flow.said()
        assert flow.received() == seen, "it guesses nothing"


@pytest.mark.parametrize("options", [(), ("--listen", "0.0.0.0:0")], ids=["in clear text", "by TLS"])
def test_a_link_that_is_cut_in_each_direction(
    tmp_path: Path, warm_jvm: WarmJvm, undisturbed: list[list[tuple[object, ...]]], options: tuple[str, ...]
) -> None:
    """Towards the owner: nothing counts as held, and the store decides. Towards the standby: it takes over."""
    relay = Relay()
    with ExitStack() as stack:
        stack.callback(relay.close)
        flow = Held(tmp_path, stack, 1, *options)
        owner = flow.run(environment={**warm_jvm.environment(), "RELAY": relay.address})
        flow.feed(2)
        relay.target = ("127.0.0.1", int((tmp_path / "port").read_text()))
        flow.standby()
        flow.wait_for_members(1)

        slow = flow.slow(owner.pid)
        relay.to_server.clear()
        flow.add()
        until(lambda: not flow.standbys(), 30)
        assert len({number for number, _ in flow.received()}) < flow.fed, (
            "the standby cannot have said that it holds it"
        )
        slow.unlink()
        flow.feed(2)
        flow.wait_for_members(0)
        assert "taken for dead" not in flow.said()
        relay.to_server.set()
        flow.wait_for_members(1)

        slow.touch()
        flow.feed(3)
        assert flow.shows_more_than_its_log()
        relay.to_client.clear()
        until(lambda: "is taken for dead: it has been silent for" in flow.said(), 60)
        until(flow.took_over_what_was_held, 120)
        slow.unlink()
        until(lambda: owner.poll() is not None)
        assert owner.returncode == 4
        assert "[FENCED]" in flow.said()
        flow.feed(2)
        flow.check(undisturbed)
        assert (b"determinant" in relay.passed or b"chosen" in relay.passed) != bool(options), "what others could read"


def known_rows(receiver: Receiver) -> dict[str, dict[str, float]]:
    """Return the rows of a receiver that ignores a key that it knows; each comes with one content alone."""
    known: dict[str, dict[str, float]] = {}
    for key, body in receiver.requests:
        (row,) = json.loads(body)
        assert known.setdefault(key, row) == row, f"{key} came with another content"
    return known


def test_the_owner_dies_while_its_store_is_away_beside_a_receiver_that_recognises_rows(
    tmp_path: Path, warm_jvm: WarmJvm, undisturbed: list[list[tuple[object, ...]]], object_server: ObjectServer
) -> None:
    with receiving() as receiver, ExitStack() as stack:
        flow = Held(tmp_path, stack, 1, more=DESK.replace("URL", receiver.url))
        flow.store = object_server.url(f"{tmp_path.parent.name}/{tmp_path.name}")
        owner = flow.run(environment=warm_jvm.environment())
        flow.feed(2)
        flow.standby()
        flow.wait_for_members(1)
        flow.slow(owner.pid)
        flow.feed(5)
        until(lambda: len(known_rows(receiver)) == ROWS * flow.fed, 60)
        assert flow.shows_more_than_its_log()
        object_server.kill()
        os.kill(owner.pid, signal.SIGKILL)
        until(lambda: "has no clear answer yet: trying for" in flow.said())
        seen = flow.received()
        object_server.restart()
        until(flow.took_over_what_was_held, 120)
        assert flow.received()[: len(seen)] == seen
        flow.feed(2)
        until(lambda: len(known_rows(receiver)) == ROWS * flow.fed, 60)
        flow.check(undisturbed)
        flow.command("verify")
