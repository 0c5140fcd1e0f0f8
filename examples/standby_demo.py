"""`make demo-standby`: real flights over a real Kafka broker; the owner of the dataflow is killed five times.

Another process stands by each time, and holds what was chosen and the store lacks. The last time two stand by, and one
of them is killed with the owner. A plain consumer sees how long the output is silent, and that each row is there once.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_judge import PATIENCE, judge_landed, judge_routes, real_flights
from under_attack import HERE, OUTPUT, WrongError, say

from boatlift.testing.kafka_broker import KafkaBroker

KILLS = 5
TOPICS = ("flights", "landed", "routes")
A_SECOND, EVERY = 400, 0.05
"""Flights that are produced in a second, and the seconds from one lot to the next."""

STEADY, AFTER = 5, 5
"""Seconds of flights before a kill, and after it."""

READY = 180.0
"""A standby is ready within so many seconds."""


def main() -> None:
    """Run the demo, print the outcome, and exit with 0 or 1."""
    began = time.monotonic()
    folder = OUTPUT / "standby"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with KafkaBroker() as broker:
            say(f"a Kafka broker runs at {broker.bootstrap}")
            attack(broker.bootstrap, folder, processes)
    except WrongError as wrong:
        print(f"demo-standby failed: {wrong}")
        sys.exit(1)
    finally:
        for process in processes:
            process.kill()
    say(f"{time.monotonic() - began:.0f} s in all")
    print("demo-standby passed")


def attack(servers: str, folder: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    """Kill the owner again and again while flights come, then judge what consumers have seen."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for made in admin.create_topics([NewTopic(name, 3, 1) for name in TOPICS]).values():
        made.result(PATIENCE)
    airport, watch = Airport(servers), Watch(servers)

    def start(*options: str, depth: int = 1) -> tuple[subprocess.Popen[bytes], Path]:
        said = folder / f"process-{len(processes)}.log"
        command = [sys.executable, "-m", "boatlift.console", "run", "kafka_flights:delays", "--store", "delays"]
        environment = {**os.environ, "PYTHONPATH": str(HERE), "BOATLIFT_DEMO_SERVERS": servers}
        environment["BOATLIFT_DEMO_DETERMINANTS"] = f"peers:{depth}"
        with said.open("w") as out:
            process = subprocess.Popen([*command, *options], cwd=folder, env=environment, stdout=out, stderr=out)
        processes.append(process)
        return process, said

    owner, _ = start()
    watch.wait_for(1)
    silences = []
    for number in range(KILLS):
        is_last = number == KILLS - 1
        standby, said = start("--standby", depth=2 if number >= KILLS - 2 else 1)
        wait_for(said, standby, "is ready")
        other = None
        if is_last:
            other, said = start("--standby", depth=2)
            wait_for(said, other, "is ready")
        time.sleep(STEADY)
        if airport.is_over():
            raise WrongError("all flights came before the last kill: this machine is too slow, or standbys are")
        killed = time.monotonic()
        owner.kill()
        if other is not None:
            other.kill()
        watch.wait_for(airport.landed + A_SECOND * AFTER)  # they come after the kill
        silences.append(watch.longest(killed))
        killed_too = "" if other is None else f" and standby {other.pid}"
        say(
            f"kill {number + 1} of {owner.pid}{killed_too}: process {standby.pid} took over, "
            f"silence {silences[-1]:.2f} s"
        )
        owner = standby
    flights = airport.close()
    landed = [flight for flight in flights if flight["arr_delay"] is not None]
    watch.wait_for(len(landed))
    owner.send_signal(signal.SIGTERM)
    if owner.wait(PATIENCE) != 0:
        raise WrongError(f"the last owner ended with status {owner.returncode}: see {folder}")
    say(f"longest silence of topic landed around {KILLS} kills: {max(silences):.2f} s; without: {watch.usual():.2f} s")
    judge_landed(servers, landed)
    judge_routes(servers, landed)


def wait_for(said: Path, process: subprocess.Popen[bytes], text: str) -> None:
    """Wait until a process has printed a text."""
    until = time.monotonic() + READY
    while text not in said.read_text():
        if process.poll() is not None or time.monotonic() > until:
            raise WrongError(f"a standby has ended, or is not ready: {said.read_text()[-600:]}")
        time.sleep(0.1)


class Airport:
    """Produces real flights at a steady rate, on a thread, until it is closed.

    Attributes:
        landed: The number of flights so far that have landed.
    """

    def __init__(self, servers: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": servers, "linger.ms": 5, "enable.idempotence": True, "log_level": 0}
        )
        self._produced: list[dict[str, Any]] = []
        self.landed = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def close(self) -> list[dict[str, Any]]:
        """End, and return the flights that were produced, in order."""
        self._over.set()
        self._thread.join()
        if self._producer.flush(PATIENCE):
            raise WrongError("the broker has not taken all flights")
        return self._produced

    def is_over(self) -> bool:
        """Return whether no flight is left."""
        return not self._thread.is_alive()

    def _work(self) -> None:
        due = time.monotonic()
        for flight in real_flights(1_000_000):
            self._producer.produce("flights", json.dumps(flight), f"{flight['origin']}-{flight['dest']}")
            self._produced.append(flight)
            self.landed += flight["arr_delay"] is not None
            if len(self._produced) % int(A_SECOND * EVERY) == 0:
                self._producer.poll(0)
                due += EVERY
                if self._over.wait(max(0.0, due - time.monotonic())):
                    return


class Watch:
    """A consumer of committed messages of topic `landed`, on a thread, that notes when they come."""

    def __init__(self, servers: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "watch", "isolation.level": "read_committed",
             "enable.auto.commit": False, "fetch.wait.max.ms": 10, "log_level": 0}
        )  # fmt: skip
        self._consumer.assign([TopicPartition("landed", number, 0) for number in range(3)])
        self._seen: list[tuple[float, int]] = []
        threading.Thread(target=self._work, daemon=True).start()

    @property
    def count(self) -> int:
        """The messages so far."""
        return self._seen[-1][1] if self._seen else 0

    def wait_for(self, count: int) -> None:
        """Wait until so many messages have come."""
        until = time.monotonic() + READY
        while self.count < count:
            if time.monotonic() > until:
                raise WrongError(f"{self.count:,} messages have come to topic landed, of {count:,}")
            time.sleep(0.01)

    def longest(self, since: float) -> float:
        """Return the longest time in which nothing came, from a moment on."""
        times = [since, *(at for at, _ in list(self._seen) if at > since)]
        return max(later - earlier for earlier, later in pairwise(times))

    def usual(self) -> float:
        """Return the median of the times between two arrivals."""
        gaps = sorted(later - earlier for (earlier, _), (later, _) in pairwise(list(self._seen)))
        return gaps[len(gaps) // 2]

    def _work(self) -> None:
        while True:
            if found := len(self._consumer.consume(500, 0.01)):
                self._seen.append((time.monotonic(), self.count + found))


if __name__ == "__main__":
    main()
