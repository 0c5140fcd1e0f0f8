"""At-least-once sinks: a function of the user's, and requests over HTTP.

The external system remembers no steps, so the log alone records what was delivered. `commit` delivers the rows of a
step in tasks. A process that dies after the delivery and before the log's record of it delivers the step once more.
With a key the receiver recognises rows, and not steps: so rows may come again in other steps.
"""

from __future__ import annotations

import secrets
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import xxhash

from boatlift.connectors.kit import SinkBase, checked_options, held_rows, read_pieces, whole_number
from boatlift.connectors.kit.http_client import PASSING, is_header
from boatlift.connectors.kit.row_identities import checked_key, refuse_unidentified, row_identities
from boatlift.connectors.kit.step_rows import ordered_part, without_equal_rows
from boatlift.dataflow.contracts import (
    Delivery,
    HeldRow,
    Json,
    Outcome,
    SinkCapabilities,
    SinkContext,
    SinkTwin,
    Staged,
)
from boatlift.errors import FLOW_AND_STORE, DataError, InvalidError, UnavailableError, from_text, to_text

if TYPE_CHECKING:
    import pyarrow as pa
    import urllib3

_TYPES = {"json": "application/json", "lines": "application/x-ndjson"}

LONGEST_REST = 30
"""The most seconds between two attempts, whatever `Retry-After` says: a waiting task delays the end of a run."""


@dataclass(frozen=True, slots=True)
class StepPart:
    """The rows of a step, or of one of its parts.

    A step that is delivered again has the same parts, with the same rows in the same order, as long as the number of
    parts stays.

    Attributes:
        key: The part's unique name: `DATAFLOW/STORE/SINK/STEP/PART`; if rows have identities, `DATAFLOW/STORE/SINK`.
        rows: The rows: the user's columns, then `_weight` if rows are changes.
        texts: A JSON object for each row.
        identities: The identity of each row at the receiver; empty if rows have none.
    """

    sink: str
    key: str
    step: int
    part: int
    rows: pa.Table
    texts: pa.ChunkedArray
    identities: Sequence[str] = ()


Deliver = Callable[[StepPart], None]
"""Sends the rows of a part to the external system, and returns once that has them. It runs in a task, and is pickled.

It raises `[SINK_FAILED]` if the external system lacks some rows, and a retry may help; `[SINK_REFUSED]` if the external
system will never accept them.
"""


class DeliveringSink(SinkBase):
    """Delivers the rows of each step, at least once, in the order of steps.

    Args:
        about: Kind, place and options, as `describe` returns them.
        parts: The number of parts of a step, which are delivered at the same time, each in a task of its own.
        identified_by: The columns that identify a row at the receiver; none if a step's number identifies its rows.
        named_by_row: Whether each request has one row, and the identity of that row as its name.
    """

    delivery = Delivery.AT_LEAST_ONCE

    def __init__(
        self,
        deliver: Deliver,
        about: Json,
        parts: int,
        functions: tuple[Callable[..., object], ...] = (),
        identified_by: tuple[str, ...] = (),
        *,
        named_by_row: bool = False,
    ) -> None:
        self._deliver, self._about, self._parts, self.functions = deliver, about, parts, functions
        self._identified_by, self._named_by_row = identified_by, named_by_row

    @property
    def capabilities(self) -> SinkCapabilities:
        return SinkCapabilities(
            runs_jobs=True, twin=self._twin, identified_by=self._identified_by, named_by_row=self._named_by_row
        )

    def _twin(self, folder: Path, name: str) -> SinkTwin:
        return delivering_twin(
            folder / name, self._about, self._parts, self._identified_by, named_by_row=self._named_by_row
        )

    def describe(self) -> Json:
        return self._about

    def open(self, context: SinkContext) -> None:
        refuse_unidentified(context, self._identified_by)
        self._context = context

    def commit(self, step: int, rows: int, _digest: str, staged: Sequence[Staged]) -> Outcome:
        from boatlift.connectors.kit.tasks import run_in_tasks, session_of_process

        context = self._opened
        if rows:
            work = _PartTask(self._deliver, context, step, rows, tuple(staged), self._parts, self._identified_by)
            try:
                spark = session_of_process()
                if spark is not None:
                    results = run_in_tasks(spark, self._parts, work, f"sink {context.sink}")
                else:
                    results = [work(number) for number in range(self._parts)]
                for result in filter(None, results):
                    raise from_text(result.decode())
            except UnavailableError as error:
                if error.condition == "SINK_REFUSED":
                    error.remedy = f"boatlift run {FLOW_AND_STORE} --skip {context.sink}:{step} leaves the step out"
                raise
        return Outcome.APPENDED


def delivering_twin(
    place: Path, about: Json, parts: int, identified_by: tuple[str, ...] = (), *, named_by_row: bool = False
) -> SinkTwin:
    """Return the twin of a sink without a ledger: each delivery of a part becomes a file, and nothing leaves.

    What may be there twice is a part of a step; if rows have identities, a row.
    """

    def held() -> Iterator[HeldRow]:
        from boatlift.connectors.parquet.step_file import read_rows

        for path in sorted(place.glob("*.parquet")):
            part, _, delivery = path.stem.rpartition("-")
            rows = held_rows(read_rows(path), (part, delivery))
            for row in rows:
                identity = ", ".join(f"{name} = {row.values[name]}" for name in identified_by)
                yield replace(row, delivered=(identity, path.stem)) if identity else row

    return SinkTwin(DeliveringSink(_Kept(place), about, parts, (), identified_by, named_by_row=named_by_row), held)


@dataclass(frozen=True, slots=True)
class _Kept:
    """Keeps each delivery as a file `STEP-PART-RANDOM.parquet`, which appears whole."""

    place: Path

    def __call__(self, part: StepPart) -> None:
        import pyarrow.parquet as pq

        self.place.mkdir(parents=True, exist_ok=True)
        draft = self.place / f".{secrets.token_hex(8)}"
        pq.write_table(part.rows, draft)
        draft.rename(self.place / f"{part.step:012}-{part.part}-{secrets.token_hex(4)}.parquet")


@dataclass(frozen=True, slots=True)
class _PartTask:
    """Delivers the part with the given number; returns the text of the error if that is refused, otherwise nothing.

    A refusal by the external system is a result and not a failure of the task: the host decides about a retry, and
    Spark would retry a failed task at once.
    """

    deliver: Deliver
    context: SinkContext
    step: int
    rows: int
    staged: tuple[Staged, ...]
    parts: int
    identified_by: tuple[str, ...]

    def __call__(self, number: int) -> bytes:
        owner = self.context
        rows, texts = ordered_part(read_pieces(self.rows, self.staged), number, self.parts, self.identified_by)
        if rows.num_rows:
            sink = f"{owner.dataflow}/{owner.store}/{owner.sink}"
            try:
                if self.identified_by:
                    rows, texts = without_equal_rows(rows, texts)
                    identities = row_identities(rows, self.identified_by, owner.sink, self.step)
                    self.deliver(StepPart(owner.sink, sink, self.step, number, rows, texts, identities))
                else:
                    self.deliver(StepPart(owner.sink, f"{sink}/{self.step}/{number}", self.step, number, rows, texts))
            except (UnavailableError, DataError, InvalidError) as error:
                return to_text(error).encode()
        return b""


@checked_options("bl.foreach")
def foreach(function: Callable[..., object], *, parts: int = 1, key: Sequence[str] | None = None) -> DeliveringSink:
    """Return a sink that calls a function with the rows of each step, at least once.

    Tasks call the function, with steps in order. Only the step under way may come again after a failure, with the same
    rows in the same order: so a function with effects that are idempotent by the step's number is exact. A task of a
    killed process may end late, after the next process has delivered later steps: a function that overwrites must
    compare the number of the step. A step without rows makes no call. An error of the function counts as a failure of
    the external system: the step is retried a few times, then the dataflow stops.

    Args:
        function: Takes the rows, a `pyarrow.Table`, and the step's number: `function(rows, step)`; with several parts
            also the part's number: `function(rows, step, part)`. If rows are changes, `_weight` is −1 or +1.
        parts: The number of parts of a step, which are delivered at the same time, each by a call of its own.
        key: The columns that identify a row where the function brings it, as of `bl.http_post`: steps may then come
            again with other numbers, and the function's effects must be idempotent by row.

    Raises:
        InvalidError: `[BAD_OPTION]`.

    Examples:
        >>> flights.sink("seen", bl.foreach(lambda rows, step: print(step, rows.num_rows)))
    """
    wanted = ("rows", "step") if whole_number("parts", parts) == 1 else ("rows", "step", "part")
    if not callable(function):
        raise InvalidError("BAD_OPTION", f"function is {function!r}: give a function of ({', '.join(wanted)})")
    name = str(getattr(function, "__qualname__", type(function).__qualname__))
    try:
        signature(function).bind(*wanted)
    except TypeError as error:
        calls = f"bl.foreach calls its function with ({', '.join(wanted)})"
        raise InvalidError("BAD_OPTION", f"{calls}, and {name} does not take these: {error}") from None
    except ValueError:  # a function in C has no signature
        pass
    by = checked_key(key)
    about: dict[str, Any] = {"kind": "foreach", "function": name, "parts": parts}
    if by:
        about |= {"key": list(by), "exactly_once_if": f"the function ignores rows whose {' and '.join(by)} it knows"}
    return DeliveringSink(_Call(function, name, with_part=parts > 1), about, parts, (function,), by)


@dataclass(frozen=True, slots=True)
class _Call:
    """Calls a function of the user's for a part."""

    function: Callable[..., Any]
    name: str
    with_part: bool

    def __call__(self, part: StepPart) -> None:
        numbers = (part.step, part.part) if self.with_part else (part.step,)
        try:
            self.function(part.rows, *numbers)
        except Exception as error:
            text = " ".join(str(error).split())
            at = traceback.extract_tb(error.__traceback__)[-1]
            raise UnavailableError(
                "SINK_FAILED",
                f"{self.name} raised at step {part.step} of sink {part.sink}: {type(error).__name__}: {text} "
                f"({at.filename}, line {at.lineno}); mend that and run again, or leave the step out with --skip "
                f"{part.sink}:{part.step}",
            ) from error


@checked_options("bl.http_post")
def http_post(
    url: str,
    *,
    format: Literal["json", "lines"] = "json",  # noqa: A002
    headers: Mapping[str, str] | None = None,
    rows_per_request: int = 1000,
    parts: int = 1,
    timeout: float = 30.0,
    tries: int = 5,
    key: Sequence[str] | None = None,
) -> DeliveringSink:
    """Return a sink that posts the rows of each step to a URL, at least once.

    Each request has the header `Idempotency-Key`, with dataflow, store, sink, step, part, request and content. A step
    that is delivered again has the same requests with the same keys, as long as `format`, `rows_per_request` and
    `parts` stay. So delivery is exactly once if the receiver ignores keys that it knows. A task of a killed process may
    post late, after the next process has posted later steps: a receiver that overwrites must compare the number of the
    step.

    With `key` each row has an identity of its own at the receiver, and rows may come again in other steps and other
    requests. If the path from the sources is row-wise, the sink then waits for no log (`boatlift plan` tells). With
    `rows_per_request=1` the header is dataflow, store, sink and the values of the key; in larger requests the receiver
    finds the key in each row.

    An answer 2xx is success. After 408, 425, 429, 500, 502, 503, 504, a timeout or a failed connection, a request is
    retried with exponential backoff, or as `Retry-After` says, up to half a minute. Any other answer is a refusal: the
    dataflow stops, and nothing is lost.

    Args:
        url: `http://…` or `https://…`.
        format: `json`: a body is an array of objects, one a row. `lines`: one object a line.
        headers: Further headers, such as `Authorization`; they are kept in memory only.
        rows_per_request: The most rows of a request.
        parts: The number of requests of a step at the same time, each in a task of its own.
        timeout: Seconds to wait for a connection, and for an answer.
        tries: The attempts at a request before the sink counts as failed. The host then delivers the step again, a few
            times, with backoff.
        key: The columns that identify a row at the receiver, which ignores a row that it knows; never NULL. With
            `rows_per_request=1` their values go into a header, which proxies may log: name no secret columns.

    Raises:
        InvalidError: `[BAD_OPTION]`, `[MISSING_EXTRA]`.

    Examples:
        >>> flights.sink("posted", bl.http_post("http://127.0.0.1:8080/flights"))
    """
    try:
        import urllib3
    except ImportError:
        raise InvalidError(
            "MISSING_EXTRA", "bl.http_post needs urllib3: pip install 'boatlift[http]', on driver and executors"
        ) from None
    place = urlsplit(str(url))
    try:
        urllib3.util.parse_url(str(url))
        is_place = place.scheme in ("http", "https") and bool(place.hostname) and place.port != 0
    except ValueError:  # the error names the whole URL
        is_place = False
    if not is_place:
        shown = place._replace(query="", fragment="").geturl()
        raise InvalidError("BAD_OPTION", f"url is {shown!r}: give http://HOST/… or https://HOST/…")
    if place.username is not None or place.password is not None:
        raise InvalidError("BAD_OPTION", "the url holds a password: give it in headers, as Authorization")
    if format not in _TYPES:
        raise InvalidError("BAD_OPTION", f"format is {format!r}: choose 'json' or 'lines'")
    for name, number in (("rows_per_request", rows_per_request), ("parts", parts), ("tries", tries)):
        whole_number(name, number)
    if not _is_seconds(timeout):
        raise InvalidError("BAD_OPTION", f"timeout is {timeout!r}: give seconds, more than 0")
    for name, value in (headers or {}).items():
        if not is_header(name, value):
            raise InvalidError("BAD_OPTION", f"header {name!r} has characters that HTTP does not carry: encode them")
    own = [name for name in headers or {} if name.lower() in ("idempotency-key", "content-type")]
    if own:
        raise InvalidError("BAD_OPTION", f"header {own[0]} is the sink's own: leave it out")
    shown = place._replace(query="", fragment="").geturl()
    by = checked_key(key)
    by_row = f"rows whose {' and '.join(by)} it knows" if by and rows_per_request > 1 else ""
    about = {
        "kind": "http_post",
        "url": shown,
        "format": format,
        "rows_per_request": rows_per_request,
        "parts": parts,
        **({"key": list(by)} if by else {}),
        "exactly_once_if": f"the receiver ignores {by_row or 'an Idempotency-Key that it knows'}",
    }
    post = _Post(url, shown, format == "lines", dict(headers or {}), rows_per_request, timeout, tries)
    return DeliveringSink(post, about, parts, (), by, named_by_row=bool(by) and rows_per_request == 1)


@dataclass(frozen=True, slots=True, repr=False)
class _Post:
    """Posts the rows of a part, one request after the other."""

    url: str
    shown: str
    lines: bool
    headers: dict[str, str]
    rows: int
    timeout: float
    tries: int

    def __call__(self, part: StepPart) -> None:
        import urllib3

        with urllib3.PoolManager(1) as pool:
            for number, begin in enumerate(range(0, len(part.texts), self.rows)):
                texts = part.texts.slice(begin, self.rows).to_pylist()
                body = ("\n".join(texts) + "\n" if self.lines else "[" + ",\n".join(texts) + "]").encode()
                key = f"{part.key}/{self._name(part, number, body)}"
                # An identity is made of the user's values, which do not belong in errors and logs.
                named = f"{number} of part {part.part} of step {part.step} of {part.sink}" if part.identities else key
                self._post(pool, key, named, body)

    def _name(self, part: StepPart, number: int, body: bytes) -> str:
        """Return what names a request of a part.

        It has the number of the request, because two requests may have equal rows. It also has a hash of the content:
        after a change of options, the receiver does not confuse new rows with known ones. A request of rows with
        identities may come again in another part: its name is the identity, or the content alone.
        """
        if not part.identities:
            return f"{number}/{xxhash.xxh3_64_hexdigest(body)}"
        return part.identities[number] if self.rows == 1 else xxhash.xxh3_128_hexdigest(body)

    def _post(self, pool: urllib3.PoolManager, key: str, named: str, body: bytes) -> None:
        """Post a body until it is accepted; errors call the request as `named` says."""
        import urllib3

        kind = _TYPES["lines" if self.lines else "json"]
        again = urllib3.Retry(
            self.tries - 1,
            redirect=False,
            allowed_methods=None,
            status_forcelist=PASSING,
            backoff_factor=0.2,
            backoff_max=LONGEST_REST,
            retry_after_max=LONGEST_REST,
            raise_on_status=False,
        )
        try:
            answer = pool.request(
                "POST",
                self.url,
                body=body,
                headers={**self.headers, "Content-Type": kind, "Idempotency-Key": key},
                timeout=self.timeout,
                retries=again,
                redirect=False,
            )
        except urllib3.exceptions.HTTPError as error:
            cause = getattr(error, "reason", None) or error  # the error itself names the whole URL, secrets included
            raise UnavailableError(
                "SINK_FAILED",
                f"{self.shown} did not answer request {named}: {_one_line(str(cause))}; the step is delivered again",
            ) from None
        if 200 <= answer.status < 300:
            return
        text = _one_line(answer.data.decode(errors="replace"))
        said = f"{self.shown} answered {answer.status} to request {named}{text and f': {text}'}"
        if answer.status in PASSING:
            raise UnavailableError("SINK_FAILED", f"{said}; the step is delivered again")
        raise UnavailableError("SINK_REFUSED", f"{said}; correct the receiver, or the options, and run again")


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and 0 < value < float("inf")
