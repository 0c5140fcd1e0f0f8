"""`boatlift run --supervised`: a run that is started again when it dies, in a JVM that outlives it.

The run is a child process, so that whatever ends it leaves the supervisor. The JVM is the supervisor's: a new run has a
Spark context, loaded classes and Python workers at once. The child writes a *beat* from its event loop every two
seconds; one that is silent hangs or is stopped, and is killed.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType

from boatlift.console.messages import notice
from boatlift.errors import UnavailableError
from boatlift.runtime.host.progress import Progress
from boatlift.spark.session.warm_jvm import WarmJvm

BEATS = "BOATLIFT_BEATS"
"""The environment variable of a child with the file descriptor that it writes its beats to."""

SILENT_SECONDS = 15.0
"""A child without a beat for so long is killed; before its first beat it may take any time."""

JVM_SECONDS, JVM_QUESTIONS = 10.0, 5
"""The JVM is asked so often whether it answers; after so many questions without an answer the child is killed."""

FIRST_BACKOFF, LONGEST_BACKOFF = 0.1, 5.0
"""Seconds from the death of a child to the start of the next one; they double until a child executes a step."""

MOST_DEATHS = 10
"""After so many deaths in a row without a step in between, the supervisor ends."""

STEP, NO_STEP = b"+", b"."
"""The two beats: the first step of the run was executed, or two seconds have passed."""


def beating(on_progress: Callable[[Progress], None]) -> Callable[[Progress], None]:
    """Return the function that a run reports its progress to: in a supervised run it writes beats, too."""
    if BEATS not in os.environ:
        return on_progress
    descriptor, worked = int(os.environ[BEATS]), False

    def report(progress: Progress) -> None:
        nonlocal worked
        with suppress(OSError):  # the supervisor is gone; its JVM ends with it, and then this run
            if progress.what == "step" and not worked:
                worked = True
                os.write(descriptor, STEP)
            elif progress.what == "beat":
                os.write(descriptor, NO_STEP)
        on_progress(progress)

    return report


class Supervisor:
    """Starts a command until it ends by itself.

    Laws:
        * A run that ends in good order, is refused, or fails in a way that a new start repeats is not started again.
        * At most one child runs. It dies with the supervisor, because its JVM does.

    Args:
        arguments: Those of the command line, without `--supervised`.
        master, conf: Of the Spark context.
    """

    def __init__(self, arguments: Sequence[str], master: str, conf: Mapping[str, str], *, quiet: bool) -> None:
        self._arguments, self._master, self._conf, self._quiet = list(arguments), master, conf, quiet
        self._child: subprocess.Popen[bytes] | None = None
        self._signals: list[int] = []

    def run(self) -> int:
        """Return the exit code of the last child."""
        deaths = 0
        with ExitStack() as stack, self._forwarding():
            jvm: WarmJvm | None = None
            while True:
                if jvm is None or not jvm.answers():
                    stack.close()
                    notice(f"starting Spark ({self._master})", quiet=self._quiet)
                    jvm = stack.enter_context(WarmJvm(self._master, self._conf, warm_up=False))
                code, worked, silent = self._live(jvm)
                if self._signals or not _starts_again(code):
                    return code if code >= 0 else 128 - code
                deaths = 1 if worked else deaths + 1
                how = "hung, and was killed" if silent else _how_it_ended(code)
                if deaths == MOST_DEATHS:
                    notice(f"the run {how}, for the {deaths}th time without a step in between: it is not started again")
                    return code if code >= 0 else 128 - code
                backoff = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2 ** (deaths - 1))
                notice(f"the run {how}: it is started again in {backoff:.1f} s")
                time.sleep(backoff)

    def _live(self, jvm: WarmJvm) -> tuple[int, bool, bool]:
        """Run a child; return its exit code, whether it has executed a step, and whether it was silent."""
        reading, writing = os.pipe()
        try:
            environment = {**jvm.environment(), BEATS: str(writing)}
            command = [sys.executable, "-m", "boatlift.console", *self._arguments]
            # In a group of its own a signal from the terminal reaches it once, by the supervisor.
            self._child = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, pass_fds=[writing], process_group=0
            )
        finally:
            os.close(writing)
        worked, silent, timeout, asked = False, False, None, time.monotonic()
        with os.fdopen(reading, "rb", 0) as beats:
            while beat := _next_beat(beats.fileno(), timeout):
                timeout = SILENT_SECONDS
                worked = worked or beat == STEP
                if time.monotonic() - asked > JVM_SECONDS:
                    if not any(jvm.answers() for _ in range(JVM_QUESTIONS)):
                        beat = None
                        break
                    asked = time.monotonic()
            if beat is None:
                silent = True
                self._child.kill()
        return self._child.wait(), worked, silent

    @contextmanager
    def _forwarding(self) -> Iterator[None]:
        """Hand SIGINT and SIGTERM on to the child; without one, end."""

        def forward(number: int, _frame: FrameType | None) -> None:
            self._signals.append(number)
            if self._child is None or self._child.poll() is not None:
                raise KeyboardInterrupt
            self._child.send_signal(signal.SIGINT)

        before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _next_beat(descriptor: int, timeout: float | None) -> bytes | None:
    """Return the next beat; empty if the child has ended, None if it is silent."""
    readable, _, _ = select.select([descriptor], [], [], timeout)
    return os.read(descriptor, 1) if readable else None


def _starts_again(code: int) -> bool:
    """Return whether another start may help: the run was killed, or something outside it failed."""
    return code < 0 or code in (1, UnavailableError.exit_code)


def _how_it_ended(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
