"""A real Kafka broker on loopback, which can be killed.

Imitations of brokers break the promises of transactions (some hand aborted rows to readers), so they prove nothing
about exactly-once delivery. This is Apache Kafka itself, one node in KRaft mode, from its published jars.
"""

from __future__ import annotations

import atexit
import base64
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from boatlift.errors import InvalidError, UnavailableError
from boatlift.testing.kafka_java import (
    ConsoleRow,
    Isolation,
    KafkaJava,
    as_properties,
    check_users,
    one_node,
    read_by_console,
    secured,
)
from boatlift.testing.loopback import TIMEOUT, ReservedPort, wait_for

_KNOWN_SECONDS = 10.0
"""Seconds after which a missing topic is an error: a broker learns of a new topic with a delay."""


class KafkaBroker:
    """An Apache Kafka broker as a process of its own (a context manager; Linux).

        with KafkaBroker() as broker:
            producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
            …
            broker.kill()
            broker.restart()

    Ports and data survive kills and restarts. A kill loses nothing that the operating system has not written yet: a
    loss of power would.

    Args:
        settings: Settings of the broker, by their names in `server.properties`; they win over those of `one_node`.
        users: Names and passwords. If there are any, a second listener `secured_bootstrap` (SASL_PLAINTEXT, PLAIN) lets
            them do what access control lists allow, at first nothing. Clients of `bootstrap` may do everything.
        heap: Java's memory, as `-Xmx` writes it.
        jars: The folder of the jars; by default that of BOATLIFT_KAFKA_JARS, or .kafka/libs of the current folder.

    Raises:
        InvalidError: `[BAD_OPTION]` a user's name or password cannot be written into the settings. On entry:
            `[MISSING_EXTRA]`, `[NO_JAVA]`.
        UnavailableError: On entry: `[BROKER_FAILED]` the broker does not start, or its jars are missing.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        users: Mapping[str, str] | None = None,
        heap: str = "512m",
        jars: Path | str | None = None,
    ) -> None:
        self._settings = dict(settings or {})
        self._users = dict(users or {})
        check_users(self._users)
        self._heap = heap
        self._jars = jars
        self._java: KafkaJava
        self._folder = Path()
        self._ports: list[ReservedPort] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._log_begin = 0
        self._writes_archive = False

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._ports[0].number}"

    @property
    def secured_bootstrap(self) -> str:
        if not self._users:
            advice = "make it with KafkaBroker(users={name: password})"
            raise LookupError(f"a broker without users has no secured listener: {advice}")
        return f"127.0.0.1:{self._ports[2].number}"

    @property
    def log(self) -> Path:
        """The file of the broker's output since its first start; removed at the end."""
        return self._folder / "broker.log"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        try:
            import confluent_kafka  # noqa: F401
        except ImportError as error:
            missing = "confluent-kafka is not installed: pip install 'boatlift[kafka]'"
            raise InvalidError("MISSING_EXTRA", missing) from error
        self._java = KafkaJava.find(self._jars)
        self._folder = Path(tempfile.mkdtemp(prefix="boatlift-kafka-"))
        self._properties = self._folder / "server.properties"
        atexit.register(self._close)
        try:
            for _ in range(3 if self._users else 2):
                self._ports.append(ReservedPort())
            self._format()
            self._start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            # Its data are not needed any more; only the archive of classes is a reason for a clean end.
            if kind is None and self._writes_archive:
                self.stop()
        finally:
            self._close()

    def kill(self) -> None:
        """Kill the broker by SIGKILL, paused or not; do nothing if it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End the broker cleanly, paused or not; do nothing if it does not run."""
        if self._process is None:
            return
        self._process.terminate()
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(TIMEOUT)
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(
                "BROKER_FAILED", f"the broker did not end within {TIMEOUT:.0f} s: kill it"
            ) from error
        self._process = None
        if self._writes_archive:
            self._java.keep_archive(self._folder / "classes.jsa")

    def restart(self) -> None:
        """Start the broker again on the same ports with the same data; a broker that runs is ended cleanly before."""
        self.stop()
        self._start()

    def pause(self) -> None:
        """Pause the broker by SIGSTOP until `resume`: it keeps its connections and does not answer."""
        process = self._existing()
        process.send_signal(signal.SIGSTOP)

        def stopped() -> object | None:
            self._check_that_it_runs()
            # The system reports the pause when the last thread has stopped.
            return os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG)

        wait_for(stopped, "the broker's pause", of_broker=True)

    def resume(self) -> None:
        """Let a paused broker go on, by SIGCONT."""
        self._existing().send_signal(signal.SIGCONT)

    def console(
        self,
        topic: str,
        *,
        isolation: Isolation = "read_committed",
        max_messages: int | None = None,
        timeout: float = 10.0,
    ) -> list[ConsoleRow]:
        """Return the rows of a topic from its beginning, read by Kafka's own console consumer.

        Args:
            isolation: `read_uncommitted` reads rows of open and aborted transactions too.
            max_messages: The number of rows after which the consumer ends; without it the consumer ends by `timeout`.
            timeout: The seconds without a row after which the consumer ends. They begin before it is connected.

        Raises:
            LookupError: there is no such topic (the console consumer itself would find no row in it).
            UnavailableError: `[BROKER_FAILED]` the broker does not answer, or the consumer failed.
        """
        deadline = time.monotonic() + _KNOWN_SECONDS
        while True:
            known = _metadata(self.bootstrap, TIMEOUT)
            if known is None:
                silent = f"the broker on {self.bootstrap} does not answer: restart it, or resume it"
                raise UnavailableError("BROKER_FAILED", silent)
            if topic in known.topics:
                break
            if time.monotonic() > deadline:
                raise LookupError(f"the broker has no topic {topic}: create it first")
            time.sleep(0.02)
        return read_by_console(self._java, self.bootstrap, topic, isolation, max_messages, timeout)

    def _format(self) -> None:
        """Write the settings, and the files that a broker needs in its folder."""
        settings = one_node(self._ports[0].number, self._ports[1].number, str(self._folder / "data"))
        if self._users:
            settings = secured(settings, self._ports[2].number, self._users)
        self._properties.write_text(as_properties(settings | self._settings), encoding="ascii")
        # An id that begins with a dash would be taken for an option.
        cluster = "b" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        arguments = ["format", "--standalone", "-t", cluster, "-c", str(self._properties)]
        options = ["-XX:TieredStopAtLevel=1"]
        self._launch(self._java.command("kafka.tools.StorageTool", *arguments, options=options))
        format_tool = self._existing()
        wait_for(lambda: format_tool.poll() is not None or None, "the format of the broker's folder", of_broker=True)
        if format_tool.returncode != 0:
            self._check_that_it_runs()
        self._process = None

    def _start(self) -> None:
        options = [f"-Xmx{self._heap}", "-XX:+ExitOnOutOfMemoryError"]
        self._writes_archive = not self._java.has_archive
        archive = self._folder / "classes.jsa" if self._writes_archive else None
        self._launch(self._java.command("kafka.Kafka", str(self._properties), options=options, write_archive=archive))
        wait_for(self._ready, f"the broker on {self.bootstrap}", of_broker=True)

    def _launch(self, command: list[str]) -> None:
        with self.log.open("ab") as log:
            self._log_begin = log.tell()
            # In a session of its own: an interrupt from the keyboard is for the tests, which then end the broker. In
            # its folder: Java writes reports of its crashes there.
            null, out = subprocess.DEVNULL, subprocess.STDOUT
            self._process = subprocess.Popen(
                command, cwd=self._folder, stdin=null, stdout=log, stderr=out, start_new_session=True
            )

    def _ready(self) -> bool | None:
        """Return True once the broker answers and leads all its partitions; None before."""
        self._check_that_it_runs()
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self._ports[0].number)) != 0:
                return None
        known = _metadata(self.bootstrap, 1.0)
        if known is None or not known.brokers:
            return None
        led = all(part.leader in known.brokers for topic in known.topics.values() for part in topic.partitions.values())
        return led or None

    def _check_that_it_runs(self) -> None:
        code = self._existing().poll()
        if code is not None:
            self._process = None
            with self.log.open("rb") as log:
                log.seek(self._log_begin)
                lines = log.read().decode(errors="replace").splitlines()
            # Lines of stack traces would push out the message.
            last = "\n".join([line for line in lines if not line.startswith("\tat ")][-20:])
            raise UnavailableError("BROKER_FAILED", f"the Kafka broker ended with exit status {code}: {last}")

    def _existing(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise LookupError("the broker does not run: restart it")
        return self._process

    def _close(self) -> None:
        """End the process and remove the files; a second call does nothing."""
        atexit.unregister(self._close)
        self.kill()
        for port in self._ports:
            port.release()
        self._ports = []
        if self._folder != Path():
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = Path()


def _metadata(bootstrap: str, timeout: float) -> Any:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    # A new client each time: a client that has failed to connect waits longer and longer before it tries again.
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        return client.list_topics(timeout=timeout)
    except KafkaException:
        return None
