"""The laws of at-least-once sinks, and what each does when its receiver fails."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import boatlift as bl
from boatlift.connectors.deliver import DeliveringSink
from boatlift.connectors.kit.arrow_text import json_objects
from boatlift.connectors.kit.step_rows import ordered_part
from boatlift.dataflow import Outcome
from boatlift.errors import InvalidError, UnavailableError
from connectors.at_least_once_laws import AtLeastOnceLaws
from connectors.conformance import SCHEMA, Row, batch_of, context, rows_of, stage
from support.push.receiver import Receiver, receiving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as there:
        yield there


def opened(sink: DeliveringSink) -> DeliveringSink:
    sink.open(context())
    return sink


def put(sink: DeliveringSink, folder: Path, step: int, rows: Sequence[Row] | None = None) -> Outcome:
    rows = rows_of(step) if rows is None else rows
    return sink.commit(step, len(rows), f"digest {step}", stage(sink, folder, step, rows))


# -- laws -------------------------------------------------------------------------------------------------------------


class _Calls:
    """A file, to which functions append a line a call."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "calls.txt"

    def sink(self, parts: int) -> DeliveringSink:
        file = str(self._file)

        def remember(rows: pa.Table, *numbers: int) -> None:
            line = json.dumps([*numbers, [list(row.values()) for row in rows.to_pylist()]]) + "\n"
            with open(file, "a") as calls:  # noqa: PTH123 - runs in a task, which knows no module of tests
                calls.write(line)

        return bl.foreach(remember, parts=parts)

    def deliveries(self) -> list[str]:
        return self._file.read_text().splitlines() if self._file.exists() else []

    def rows(self) -> list[Row]:
        return [tuple(row) for call in self.deliveries() for row in json.loads(call)[-1]]


class TestForeach(AtLeastOnceLaws):
    @staticmethod
    @contextmanager
    def outside(folder: Path) -> Iterator[_Calls]:
        folder.mkdir(exist_ok=True)
        yield _Calls(folder)


class _Prints:
    """Standard output, for as long as the context."""

    def __init__(self, printed: io.StringIO) -> None:
        self._printed = printed

    def sink(self, parts: int) -> DeliveringSink:
        assert parts == 1
        return bl.stdout(rows=1000)

    def deliveries(self) -> list[str]:
        return self._printed.getvalue().splitlines()

    def rows(self) -> list[Row]:
        texts = [line.partition(": ")[2] for line in self._printed.getvalue().splitlines()]
        weights = {"+": 1, "-": -1}
        return [(*json.loads(text[2:]).values(), weights[text[0]]) for text in texts]


class TestStdout(AtLeastOnceLaws):
    parts = (1,)

    @staticmethod
    @contextmanager
    def outside(folder: Path) -> Iterator[_Prints]:
        folder.mkdir(exist_ok=True)
        with redirect_stdout(io.StringIO()) as printed:
            yield _Prints(printed)


def test_rows_beyond_the_bound_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sink = bl.stdout(rows=2)
    sink.open(context())
    put(sink, tmp_path, 3)
    *shown, more = capsys.readouterr().out.splitlines()
    assert len(shown) == 2
    assert more == f"out 3: and {len(rows_of(3)) - 2} more rows"
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\]"):
        bl.stdout(rows=0)


def test_bytes_are_printed_as_text_where_they_are_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sink = bl.stdout()
    schema = pa.schema([("value", pa.binary()), pa.field("_weight", pa.int64(), nullable=False)])
    sink.open(replace(context(), schema=schema))
    rows: list[Any] = [(b"caf\xc3\xa9", 1), (b"\xff\x00", 1), (None, 1), (b"", 1)]
    sink.commit(3, len(rows), "digest 3", stage(sink, tmp_path, 3, rows, schema))
    shown = [json.loads(line.partition("+ ")[2])["value"] for line in capsys.readouterr().out.splitlines()]
    assert sorted(shown, key=str) == ["", None, "base64:/wA=", "café"]


class _Posts:
    """A server, and posts to it."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def sink(self, parts: int) -> DeliveringSink:
        return bl.http_post(self._receiver.url, parts=parts, rows_per_request=15)

    def deliveries(self) -> list[Any]:
        return list(self._receiver.requests)

    def rows(self) -> list[Row]:
        return [tuple(row.values()) for row in self._receiver.rows()]


class TestHttpPost(AtLeastOnceLaws):
    @staticmethod
    @contextmanager
    def outside(folder: Path) -> Iterator[_Posts]:
        folder.mkdir(exist_ok=True)
        with receiving() as receiver:
            yield _Posts(receiver)


def test_equal_rows_are_delivered_as_often_as_they_are_there(tmp_path: Path) -> None:
    table = pa.Table.from_batches([batch_of([rows_of(0)[1]] * 5)])
    parts = [ordered_part([table, table], number, 4)[0].num_rows for number in range(4)]
    assert sorted(parts) == [0, 0, 0, 10]


def test_rows_of_any_type_have_an_order() -> None:
    nested = pa.table(
        {
            "m": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
            "s": pa.array([{"x": [1.5, None]}, {"x": []}]),
            "b": pa.array([b"\xff", None]),
        }
    )
    rows, texts = ordered_part([nested], 0, 1)
    assert rows.num_rows == 2
    assert texts.to_pylist() == sorted(
        json_objects(nested.schema.names, nested.combine_chunks().to_batches()[0].columns).to_pylist()
    )


# -- functions --------------------------------------------------------------------------------------------------------


def test_a_function_that_raises_is_a_failure_of_the_outside(tmp_path: Path) -> None:
    def refuse(rows: pa.Table, step: int) -> None:
        raise ValueError("the service\nis away")

    with pytest.raises(
        UnavailableError,
        match=r"\[SINK_FAILED\] .*refuse raised at step 3 of sink out: ValueError: the service is away",
    ):
        put(opened(bl.foreach(refuse)), tmp_path, 3)


@pytest.mark.parametrize(
    ("function", "parts", "said"),
    [
        (lambda rows: None, 1, r"with \(rows, step\), and .* does not take these"),
        (lambda rows, step: None, 2, r"with \(rows, step, part\), and .* does not take these"),
        (7, 1, "function is 7: give a function"),
        (print, 0, "parts is 0: give a whole number"),
    ],
)
def test_bad_functions_are_refused(function: Any, parts: int, said: str) -> None:
    with pytest.raises(InvalidError, match=rf"\[BAD_OPTION\] .*{said}"):
        bl.foreach(function, parts=parts)


# -- posts ------------------------------------------------------------------------------------------------------------


def posting(receiver: Receiver, **options: Any) -> DeliveringSink:
    return opened(bl.http_post(receiver.url, **{"timeout": 5, "tries": 2, **options}))


def test_every_row_is_posted_some_a_request_each_under_a_key_of_its_own(receiver: Receiver, tmp_path: Path) -> None:
    put(posting(receiver, rows_per_request=15), tmp_path, 0)
    wanted = [dict(zip(SCHEMA.names, row, strict=True)) for row in rows_of(0)]
    assert sorted(receiver.rows(), key=repr) == sorted(wanted, key=repr)
    keys = [key for key, _ in receiver.requests]
    assert len(set(keys)) == 3
    assert all(key.startswith(f"flow/{'5' * 32}/out/0/0/") for key in keys)


def test_a_step_that_is_delivered_again_has_the_same_keys_and_other_requests_have_others(
    receiver: Receiver, tmp_path: Path
) -> None:
    for _ in range(2):
        put(posting(receiver), tmp_path, 0)
    put(posting(receiver, rows_per_request=15), tmp_path, 0)
    first, second, *others = receiver.requests
    assert first == second
    assert first[0] not in {key for key, _ in others}, "a receiver would drop rows that it does not have"


def test_requests_with_equal_rows_have_keys_of_their_own(receiver: Receiver, tmp_path: Path) -> None:
    rows = [rows_of(0)[1]] * 5
    put(posting(receiver, rows_per_request=2), tmp_path, 0, rows)
    put(posting(receiver, rows_per_request=2), tmp_path, 0, rows)
    keys = [key for key, _ in receiver.requests]
    assert len(set(keys)) == 3, "a receiver that drops known keys must get all five rows"
    assert keys[:3] == keys[3:]


def test_lines_are_objects_one_a_line(receiver: Receiver, tmp_path: Path) -> None:
    put(posting(receiver, format="lines"), tmp_path, 0)
    ((_, body),) = receiver.requests
    assert len([json.loads(line) for line in body.splitlines()]) == len(rows_of(0))


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_answer_that_may_pass_is_tried_again(receiver: Receiver, tmp_path: Path, status: int) -> None:
    receiver.answers.append((status, {"Retry-After": "0"}))
    put(posting(receiver), tmp_path, 0)
    assert receiver.tried == 2
    assert len(receiver.rows()) == len(rows_of(0))


def test_an_answer_that_does_not_pass_is_a_failure(receiver: Receiver, tmp_path: Path) -> None:
    receiver.answers.extend([(503, {"Retry-After": "0"})] * 2)
    with pytest.raises(UnavailableError, match=r"\[SINK_FAILED\] .*/orders answered 503 .*: that is no order"):
        put(posting(receiver), tmp_path, 0)


@pytest.mark.parametrize("status", [301, 302, 400, 401, 422])
def test_a_refusal_stops_and_is_not_tried_again(receiver: Receiver, tmp_path: Path, status: int) -> None:
    receiver.answers.append((status, {"Location": receiver.url}))
    with pytest.raises(
        UnavailableError, match=rf"\[SINK_REFUSED\] .*answered {status} .*: that is no order"
    ) as refused:
        put(posting(receiver), tmp_path, 6)
    assert receiver.tried == 1
    assert not receiver.requests
    assert refused.value.remedy == "boatlift run FLOW --store STORE --skip out:6 leaves the step out"


def test_a_receiver_that_never_answers_is_a_failure(receiver: Receiver, tmp_path: Path) -> None:
    receiver.answers.extend([(0, {})] * 2)
    with pytest.raises(UnavailableError, match=r"\[SINK_FAILED\] .*did not answer request flow/"):
        put(posting(receiver, timeout=0.2), tmp_path, 0)


def test_a_receiver_that_is_not_there_is_a_failure_and_its_error_shows_no_secret(tmp_path: Path) -> None:
    sink = opened(bl.http_post("http://127.0.0.1:1/x?token=secret", timeout=1, tries=1))
    with pytest.raises(UnavailableError, match=r"\[SINK_FAILED\] http://127.0.0.1:1/x did not answer") as failed:
        put(sink, tmp_path, 0)
    assert "secret" not in str(failed.value)
    assert "refused" in str(failed.value)


def test_secrets_are_not_shown() -> None:
    sink = bl.http_post("https://example.org/in?token=secret", headers={"Authorization": "secret"})
    assert "secret" not in repr(sink.describe())


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("ftp://x/y", {}, r"url is 'ftp://x/y': give http"),
        ("http://host:99999/x?token=secret", {}, r"url is 'http://host:99999/x': give http"),
        ("http://me:pass@x/y", {}, "the url holds a password"),
        ("http://x", {"format": "xml"}, "format is 'xml'"),
        ("http://x", {"rows_per_request": 0}, "rows_per_request is 0"),
        ("http://x", {"parts": 1.5}, "parts is 1.5"),
        ("http://x", {"tries": 0}, "tries is 0"),
        ("http://x", {"tries": None}, "tries is None"),
        ("http://x", {"parts": "x"}, "parts is 'x'"),
        ("http://x", {"timeout": 0}, "timeout is 0"),
        ("http://x", {"timeout": "3"}, "timeout is '3'"),
        ("http://x", {"timeout": float("inf")}, "timeout is inf"),
        ("http://x", {"headers": {"My Header": "1"}}, "header 'My Header' has characters"),
        ("http://x", {"headers": {"": "1"}}, "header '' has characters"),
        ("http://x", {"headers": {"a": 1}}, "header 'a' has characters"),
        ("http://x", {"headers": {"a": "b\nc: d"}}, "header 'a' has characters"),
        ("http://x", {"headers": {"a": "…"}}, "header 'a' has characters"),
        ("http://x", {"headers": {"idempotency-key": "1"}}, "header idempotency-key is the sink's own"),
        ("http://x", {"patience": 1}, "bl.http_post has no option patience"),
    ],
)
def test_bad_options_are_refused(url: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidError, match=rf"\[BAD_OPTION\] {said}"):
        bl.http_post(url, **options)
