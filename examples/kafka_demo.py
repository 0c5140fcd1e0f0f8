"""`make kafka-demo`: real flights through two dataflows over Kafka; both are killed, and the broker too.

The judges share no code with the library's reading: a plain consumer, and the console consumer that comes with Kafka.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_judge import PATIENCE, by_key, judge_landed, judge_routes, read, real_flights
from under_attack import HERE, OUTPUT, WrongError, say

from boatlift.testing.kafka_broker import KafkaBroker

FLIGHTS = 120_000
TOPICS = ("flights", "landed", "routes", "late")


def main() -> None:
    """Run the demo, print the outcome, and exit with 0 or 1."""
    began = time.monotonic()
    folder = OUTPUT / "kafka"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        with KafkaBroker() as broker:
            say(f"a Kafka broker runs at {broker.bootstrap}")
            Demo(broker, folder, int(sys.argv[1]) if len(sys.argv) > 1 else 2013).run()
    except WrongError as wrong:
        print(f"kafka-demo failed: {wrong}")
        sys.exit(1)
    say(f"{time.monotonic() - began:.0f} s in all")
    print("kafka-demo passed")


class Demo:
    """The broker, the two dataflows, and what has been seen of them."""

    def __init__(self, broker: KafkaBroker, folder: Path, seed: int) -> None:
        self.broker, self.folder = broker, folder
        self.seed, self.draws = seed, random.Random(seed)
        self.restarts = 0

    def run(self) -> None:
        """Attack, then judges."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        for made in admin.create_topics([NewTopic(name, 3, 1) for name in TOPICS]).values():
            made.result(PATIENCE)
        flights = self.produce()
        self.attack()
        self.judge(flights)

    def produce(self) -> list[dict[str, Any]]:
        """Produce real flights in transactions, and some that are aborted."""
        flights = list(real_flights(FLIGHTS))
        producer = Producer(
            {"bootstrap.servers": self.broker.bootstrap, "transactional.id": "airport", "linger.ms": 5, "log_level": 0}
        )
        producer.init_transactions(PATIENCE)
        for number, begin in enumerate(range(0, len(flights), 5000)):
            for aborted in (True, False) if number % 5 == 0 else (False,):
                producer.begin_transaction()
                for flight in flights[begin : begin + 5000]:
                    key = f"{flight['origin']}-{flight['dest']}"
                    while True:
                        try:
                            producer.produce("flights", json.dumps(flight), key)
                            break
                        except BufferError:
                            producer.poll(0.1)
                producer.flush(PATIENCE)
                producer.abort_transaction() if aborted else producer.commit_transaction(PATIENCE)
        say(f"{len(flights):,} real flights of 2013 are in topic flights, and some that were aborted between them")
        return flights

    def attack(self) -> None:
        """Kill both dataflows, the broker in the middle of a commit, and let an owner sleep through a takeover."""
        say(f"crash points are drawn with seed {self.seed}")
        self.killed("delays", self.after("sink.written(landed_out)", 4), "with rows of a step in open transactions")
        self.killed("delays", self.after("sink.commit(routes_out)", 3), "just after a commit, before that is known")
        self.killed("delays", self.after("step(routes)", 4), "after a step was executed")
        self.broker_killed("delays", self.after("sink.written(routes_out)", 2), "routes")
        self.zombie("delays", self.after("sink.written(landed_out)", 3))
        self.killed("late", "sink.written(late_out):after:1", "with rows in an open transaction")
        self.killed("late", "sink.commit(late_out):after:1", "just after a commit")
        self.ends(self.start("late"), "late")

    def after(self, moment: str, most: int) -> str:
        """Draw the visit of a crash point that is hit."""
        return f"{moment}:after:{self.draws.randint(1, most)}"

    def killed(self, flow: str, at: str, when: str) -> None:
        """Run a dataflow that is killed at a crash point."""
        say(f"SIGKILL of {flow} {when} ({at})")
        if self.start(flow, "--at", at).wait() != -signal.SIGKILL:
            raise WrongError(f"{flow} passed {at} without being killed there: see {self.log(flow)}")

    def broker_killed(self, flow: str, at: str, topic: str) -> None:
        """Stop a dataflow in the middle of a commit to a topic, kill the broker there, start it, and let both go on."""
        say(f"SIGKILL of the broker while {flow} is in the middle of a commit ({at})")
        process = self.start(flow, "--at", at, "--pause")
        self.paused(process)
        before = len(read(self.broker.bootstrap, topic))
        self.broker.kill()
        self.broker.restart()
        os.kill(process.pid, signal.SIGCONT)
        deadline = time.monotonic() + PATIENCE
        while len(read(self.broker.bootstrap, topic)) == before:
            if process.poll() is not None:
                raise WrongError(f"{flow} ended with status {process.returncode}: see {self.log(flow)}")
            if time.monotonic() > deadline:
                raise WrongError(f"{flow} wrote nothing after the broker was there again: see {self.log(flow)}")
            time.sleep(0.1)
        self.restarts += 1
        process.kill()
        process.wait()
        say("  the commit went on to its end; then the dataflow was killed too")

    def zombie(self, flow: str, at: str) -> None:
        """Stop a dataflow in the middle of a commit, let another process take over and end; then wake the first."""
        say(f"SIGSTOP of {flow} in the middle of a commit ({at}); another process takes over")
        sleeper = self.start(flow, "--at", at, "--pause")
        self.paused(sleeper)
        self.ends(self.start(flow), flow)
        os.kill(sleeper.pid, signal.SIGCONT)
        if sleeper.wait(PATIENCE) in (0, None) or "[FENCED]" not in self.log(flow).read_text():
            raise WrongError(f"who slept through the takeover went on: see {self.log(flow)}")
        say("  who slept was fenced when it woke")

    def start(self, flow: str, *attack: str) -> subprocess.Popen[bytes]:
        """Start a dataflow as a process of its own."""
        command = [
            sys.executable,
            str(HERE / "kafka_run.py"),
            f"kafka_flights:{flow}",
            "--store",
            flow,
            "--available-now",
        ]
        environment = {
            "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1",
            **os.environ,
            "PYTHONPATH": str(HERE),
            "BOATLIFT_DEMO_SERVERS": self.broker.bootstrap,
        }
        with self.log(flow).open("a") as out:
            return subprocess.Popen([*command, *attack], cwd=self.folder, env=environment, stdout=out, stderr=out)

    def ends(self, process: subprocess.Popen[bytes], flow: str) -> None:
        """Wait until a dataflow has taken all input."""
        if process.wait() != 0:
            raise WrongError(f"{flow} ended with status {process.returncode}: {self.log(flow).read_text()[-600:]}")
        say(f"  {flow} has come to the end of its input")

    def paused(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until a process has stopped itself."""
        deadline = time.monotonic() + 5 * PATIENCE  # it starts a JVM first, and takes some steps
        while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            if time.monotonic() > deadline:
                raise WrongError("a process did not come to where it was to be stopped")
            if process.poll() is not None:
                raise WrongError(f"a process ended with status {process.returncode} before it was to be stopped")
            time.sleep(0.05)

    def log(self, flow: str) -> Path:
        """Return the file of a dataflow's messages."""
        return self.folder / f"{flow}.log"

    def judge(self, flights: list[dict[str, Any]]) -> None:
        """Compare the rows that plain consumers see with the expected ones; count the failures survived."""
        landed = [flight for flight in flights if flight["arr_delay"] is not None]
        judge_landed(self.broker.bootstrap, landed)
        judge_routes(self.broker.bootstrap, landed)
        late = {
            route: [row for row in rows if row["delay"] > 15 * row["flights"]]
            for route, rows in by_key(read(self.broker.bootstrap, "routes")).items()
        }
        if by_key(read(self.broker.bootstrap, "late")) != {route: rows for route, rows in late.items() if rows}:
            raise WrongError("topic late has not each late route of topic routes once, in order")
        say(f"topic late: {sum(map(len, late.values())):,} changes, each once, in order on each route")
        self.judge_by_console()
        self.count()

    def judge_by_console(self) -> None:
        """Check that the console consumer sees the same rows as the plain one."""
        for topic in TOPICS[1:]:
            plain = sorted((m.partition(), m.key(), m.value()) for m in read(self.broker.bootstrap, topic))
            console = self.broker.console(topic)  # to the end: it must see no more either
            if sorted((row.partition, row.key, row.value) for row in console) != plain:
                raise WrongError(f"the console consumer sees other rows of topic {topic} than a plain consumer")
        say("the console consumer that comes with Kafka sees the same rows")

    def count(self) -> None:
        """Print the failures that were survived; each must have happened."""
        told = "".join(self.log(flow).read_text() for flow in ("delays", "late"))
        aborted = sum(
            len(read(self.broker.bootstrap, topic, committed=False)) - len(read(self.broker.bootstrap, topic))
            for topic in TOPICS[1:]
        )
        counts = {
            "rows in transactions that were aborted": aborted,
            "steps compared and dropped": told.count("compared and dropped"),
            "producers fenced": told.count("[FENCED]"),
            "broker restarts in the middle of a commit": self.restarts,
        }
        for what, count in counts.items():
            say(f"{what}: {count:,}")
        if not all(counts.values()):
            raise WrongError("something that was to be survived did not happen")


if __name__ == "__main__":
    main()
