"""The JVM of Spark: its start, its output, and the error that is raised when it is gone.

A dead JVM shows in many ways: an empty answer, a refused connection, a cancelled job. So the state of the JVM is
checked after each such error.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from boatlift.errors import BoatliftError, InternalError, UnavailableError

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext

SECONDS_TO_DIE = 10.0
"""The time in which a JVM that no longer answers has to end."""

SECONDS_TO_END = 3.0
"""The time in which a run ends that was stopped at once, and in which a JVM answers a question."""

SECONDS_OF_LAST_WORDS = 2.0
"""The time to wait for the last lines of a dead JVM."""

_GOING = ("SparkContext was shut down", "stopped SparkContext", "does not exist in the JVM")
"""Signs in errors of Spark and Py4J that a JVM is about to end."""

_IF_MEMORY_RAN_OUT = "if memory ran out, give the JVM (spark.driver.memory) or the machine more"

_OUTPUT, _CONNECTION = "boatlift_output", "boatlift_connection"
"""The attributes of a gateway for its JVM's output, and for a connection that ends with the JVM."""


def start_jvm(conf: SparkConf) -> Any:
    """Start a JVM for a Spark context, and return its gateway.

    Raises:
        UnavailableError: `[SPARK_NOT_STARTED]` the JVM ended while it started.
    """
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    reading, writing = os.pipe()
    output = JvmOutput(os.fdopen(reading, "rb"))
    ended: PySparkRuntimeError | None = None
    started: list[subprocess.Popen[bytes]] = []
    try:
        with _noted(started):
            gateway: Any = launch_gateway(conf, {"stderr": writing})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as error:
        ended = error
    except BaseException:  # after Ctrl-C PySpark would leave the JVM running for ever
        for jvm in started:
            jvm.kill()
            jvm.wait()
        raise
    finally:
        os.close(writing)
    if ended is not None:
        words = output.first_words(SECONDS_OF_LAST_WORDS)
        raise UnavailableError(
            "SPARK_NOT_STARTED",
            f"the JVM of Spark ended while it started ({words or 'it said nothing'}): correct the options of Spark and "
            "Java, or see to the machine's memory, then run again",
        ) from ended
    setattr(gateway, _OUTPUT, output)
    output.pass_on()
    return gateway


@contextmanager
def _noted(processes: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Note the JVM that PySpark starts in this block, before Ctrl-C can interrupt the block.

    SIGTERM to the process group leaves it alive: the steps under way need it. PySpark does this for SIGINT, by a
    function that it passes to `Popen` itself.
    """
    from pyspark import java_gateway

    popen: type[subprocess.Popen[bytes]] = vars(java_gateway)["Popen"]

    def started(command: list[str], *, preexec_fn: Callable[[], None], **options: Any) -> subprocess.Popen[bytes]:
        def prepared() -> None:
            preexec_fn()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

        with _interrupted_later():
            processes.append(popen(command, preexec_fn=prepared, **options))
        return processes[-1]

    vars(java_gateway)["Popen"] = started
    try:
        yield
    finally:
        vars(java_gateway)["Popen"] = popen


@contextmanager
def _interrupted_later() -> Iterator[None]:
    """Put Ctrl-C off to the end of a block; it interrupts the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)


def death_of_jvm(error: BaseException) -> UnavailableError | None:
    """Return the error to raise if the JVM is gone; None if it lives.

    Args:
        error: The error that was raised. If it shows that Py4J or PySpark has lost its JVM, the call waits for the end
            of that JVM.
    """
    if isinstance(error, UnavailableError) and error.condition == "JVM_DIED":
        return error
    return _dead(SECONDS_TO_DIE if any(map(_looks_like_the_end, _causes(error))) else 0.0)


def _dead(wait_seconds: float) -> UnavailableError | None:
    """Return the error to raise if the JVM is gone, or ends within some seconds."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is None or not _is_gone(gateway, wait_seconds):
        return None
    return UnavailableError(
        "JVM_DIED",
        f"the JVM of Spark died{_how_it_ended(gateway)}: run the same command again in a new process, and it goes on"
        + ("" if _was_asked_to_end(gateway) else f"; {_IF_MEMORY_RAN_OUT}"),
    )


def check_jvm() -> None:
    """Raise if the JVM is gone; this calls no method of the JVM.

    Raises:
        UnavailableError: `[JVM_DIED]`.
    """
    if (dead := _dead(0.0)) is not None:
        raise dead


def answers(gateway: Any) -> bool:
    """Return whether the JVM of a gateway answers a question within `SECONDS_TO_END`."""
    answers = list[int]()

    def ask() -> None:
        with suppress(Exception):  # the JVM has ended
            answers.append(gateway.jvm.java.lang.System.nanoTime())

    question = threading.Thread(target=ask, name="jvm-question", daemon=True)
    question.start()
    question.join(SECONDS_TO_END)
    return bool(answers)


def pid_of_jvm() -> int | None:
    """Return the process of Spark's JVM; None if there is none, or another process has started it."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = None if gateway is None else _of_gateway(gateway, "proc")
    return None if process is None else process.pid


def kill_jvm_if_hung(ended: threading.Event) -> None:
    """Kill the JVM of this process if a run does not end because the JVM does not answer.

    The calls of Py4J have no timeout; they raise once the JVM is gone.

    Args:
        ended: Set when the run has ended.
    """
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is None or ended.wait(SECONDS_TO_END) or answers(gateway) or ended.is_set():
        return
    process: subprocess.Popen[bytes] | None = _of_gateway(gateway, "proc")
    if process is None:
        pid = os.getpid()
        _write(f"boatlift: the JVM, which another process started, does not answer: kill -KILL {pid} ends this run\n")
    else:
        _write(f"boatlift: the JVM of Spark (process {process.pid}) does not answer, and is killed\n")
        process.kill()


def cause_in_java(error: Exception) -> str:
    """Return why Spark failed, in one line: the first cause of a Java exception, or the death of the JVM."""
    from py4j.protocol import Py4JJavaError
    from pyspark import SparkContext

    if death_of_jvm(error) is not None:
        return f"its JVM died{_how_it_ended(SparkContext._gateway)}"
    if isinstance(error, Py4JJavaError):
        thrown: Any = error.java_exception
        while (cause := thrown.getCause()) is not None:
            thrown = cause
        return str(thrown.getMessage() or thrown.toString()).splitlines()[0]
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


@contextmanager
def raising_jvm_died() -> Iterator[None]:
    """Raise `[JVM_DIED]` instead of an error that a dead JVM has caused.

    Errors with another cause stay, such as stored data that differ from the record, or a newer owner.
    """
    try:
        yield
    except Exception as error:
        dead = None if _says_more(error) else death_of_jvm(error)
        if dead is None or dead is error:
            raise
        raise dead from error


@contextmanager
def unless_gone() -> Iterator[None]:
    """Ignore an error that a dead JVM has caused, because the JVM's objects are gone with it."""
    try:
        yield
    except Exception as error:
        if death_of_jvm(error) is None:
            raise


def quiet_when_gone(context: SparkContext) -> None:
    """Keep PySpark and Py4J from printing tracebacks when the JVM closes its connections."""
    logging.getLogger().addFilter(_is_no_closed_connection)
    server: Any = context._accumulatorServer  # noqa: SLF001 - PySpark has no public name for it
    if server is None or "handle_error" in vars(server):
        return
    handle_others = server.handle_error

    def handle_error(request: Any, client: Any) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            handle_others(request, client)

    server.handle_error = handle_error


def _is_no_closed_connection(record: logging.LogRecord) -> bool:
    """Return False for a record that Py4J logs on the root logger, about an error that it also raises."""
    return not (record.module == "java_gateway" and record.getMessage() == "Exception while sending command.")


def _is_gone(gateway: Any, wait_seconds: float) -> bool:
    process: subprocess.Popen[bytes] | None = _of_gateway(gateway, "proc")
    if process is None:
        return _has_hung_up(gateway, wait_seconds)
    try:
        process.wait(wait_seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _has_hung_up(gateway: Any, wait_seconds: float) -> bool:
    """Return whether a JVM of another process is gone: the connection is silent until then."""
    connection: socket.socket | None = _of_gateway(gateway, _CONNECTION)
    if connection is None:
        address = gateway.gateway_parameters
        try:
            connection = socket.create_connection((address.address, address.port), SECONDS_TO_DIE)
        except TimeoutError:  # the JVM is stopped or busy
            return False
        except OSError:
            return True
        setattr(gateway, _CONNECTION, connection)
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    return bool(poller.poll(1000 * wait_seconds))


def _of_gateway(gateway: Any, name: str) -> Any:
    """Return an attribute of a gateway, or None; `getattr` would make a Java method of any name."""
    return vars(gateway).get(name)


def _how_it_ended(gateway: Any) -> str:
    output: JvmOutput | None = _of_gateway(gateway, _OUTPUT)
    words = output.last_words(SECONDS_OF_LAST_WORDS) if output is not None else ""
    process: subprocess.Popen[bytes] | None = _of_gateway(gateway, "proc")
    status = None if process is None else process.returncode
    parts = [
        *([] if status is None else [f"exit status {status}" if status >= 0 else f"killed by signal {-status}"]),
        *([f"it said: {words}"] if words else []),
    ]
    return f" ({'; '.join(parts)})" if parts else ""


def _was_asked_to_end(gateway: Any) -> bool:
    """Return whether SIGHUP, SIGINT or SIGTERM has ended the JVM, rather than an error of its own or SIGKILL."""
    process: subprocess.Popen[bytes] | None = _of_gateway(gateway, "proc")
    asked = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    return process is not None and process.returncode in {code for each in asked for code in (-each, 128 + each)}


def _says_more(error: Exception) -> bool:
    if not isinstance(error, BoatliftError) or isinstance(error, UnavailableError | InternalError):
        return False
    return not any(_looks_like_the_end(each) for each in _causes(error))


def _looks_like_the_end(error: BaseException) -> bool:
    from py4j.protocol import Py4JError, Py4JNetworkError
    from pyspark.errors import PySparkException

    match error:
        case Py4JNetworkError():
            return True
        case ConnectionError() | EOFError():
            return _comes_of_spark(error)
        case Py4JError() | PySparkException():
            try:
                text = str(error)
            except (Py4JNetworkError, OSError):  # Py4J asks the JVM for the text
                return True
            return any(sign in text for sign in _GOING)
        case _:
            return False


def _comes_of_spark(error: BaseException) -> bool:
    """Return whether Py4J or PySpark raised an error, rather than a connector or the user's code."""
    import py4j
    import pyspark

    folders = [Path(str(package.__file__)).parent for package in (py4j, pyspark)]
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    raising = next((file for file in reversed(files) if file != socket.__file__), "")
    return any(Path(raising).is_relative_to(folder) for folder in folders)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and not any(each is other for other in seen):  # causes may go in a circle
        yield each
        seen.append(each)
        each = each.__cause__ or each.__context__


LINES_KEPT = 200
"""The number of lines that are kept: more than a stack trace has."""

_NOISE = frozenset({"WARNING: Using incubator modules: jdk.incubator.vector"})
"""Spark enables this module, and the JVM has no option against the warning."""

_CAUSES = ("OutOfMemoryError", "insufficient memory", "Could not reserve", "Exception in thread")
"""Signs of a line that tells the cause; the first sign that is found wins."""

_PREAMBLE = ("WARNING: ", "Picked up ", "Using Spark's ", "Error occurred during initialization of VM")
"""The beginnings of lines that a JVM writes before the line with the cause."""


class JvmOutput:
    """Reads the lines of a JVM's standard error, and holds them back until `pass_on` is called.

    Args:
        stream: The reading end of the JVM's standard error.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._lock = threading.Lock()
        self._passes_on = False
        self._thread = threading.Thread(target=self._read, name="jvm-output", daemon=True)
        self._thread.start()

    def pass_on(self) -> None:
        """Write all lines to this process's standard error, past and future ones."""
        with self._lock:
            self._passes_on = True
            for line in self._lines:
                _write(line)

    def last_words(self, wait_seconds: float) -> str:
        """Return the line with the cause of the JVM's end; "" if there is none.

        Args:
            wait_seconds: The time to wait for the last lines of a JVM that has ended.
        """
        lines = self._stripped(wait_seconds)
        return next((line for sign in _CAUSES for line in reversed(lines) if sign in line), "")

    def first_words(self, wait_seconds: float) -> str:
        """Return the line that tells why the JVM did not start; "" if it wrote nothing."""
        lines = self._stripped(wait_seconds)
        begun = (line for line in lines if not line.startswith(_PREAMBLE))
        return self.last_words(0) or next(begun, "")

    def _stripped(self, wait_seconds: float) -> list[str]:
        self._thread.join(wait_seconds)
        with self._lock:
            return [line.strip() for line in self._lines if line.strip()]

    def _read(self) -> None:
        with self._stream:
            for raw in self._stream:
                line = raw.decode(errors="replace")
                if line.strip() in _NOISE:
                    continue
                with self._lock:
                    self._lines.append(line)
                    if self._passes_on:
                        _write(line)


def _write(line: str) -> None:
    with suppress(ValueError, OSError):  # standard error is closed; the JVM must not wait for a reader
        sys.stderr.write(line)
        sys.stderr.flush()
