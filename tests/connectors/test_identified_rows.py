"""Deliveries whose rows have an identity of their own at the receiver."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import boatlift as bl
from boatlift.connectors.deliver import DeliveringSink
from boatlift.connectors.kit.row_identities import LONGEST, row_identities
from boatlift.errors import DataError, InvalidError, UnavailableError
from boatlift.testing.held import RowsOfSink
from boatlift.testing.twins import write_held
from connectors.conformance import context, stage
from support.push.receiver import Receiver, receiving

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.int64()), ("text", pa.string())])
ROWS: list[tuple[Any, ...]] = [("a", 1, "one"), ("a", 2, "two"), ("b/c", 1, "three")]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as there:
        yield there


def opened(sink: DeliveringSink, schema: pa.Schema = SCHEMA) -> DeliveringSink:
    sink.open(replace(context(), schema=schema, changes=False))
    return sink


def put(sink: DeliveringSink, folder: Path, step: int, rows: Sequence[tuple[Any, ...]]) -> None:
    sink.commit(step, len(rows), f"digest {step}", stage(sink, folder, step, list(rows), SCHEMA))


def posting(receiver: Receiver, **options: Any) -> DeliveringSink:
    return bl.http_post(receiver.url, **{"timeout": 5, "tries": 2, "key": ["id", "part"], **options})


@pytest.mark.parametrize("parts", [1, 3])
def test_a_request_of_one_row_has_the_identity_of_the_row_whatever_step_it_comes_in(
    receiver: Receiver, tmp_path: Path, parts: int
) -> None:
    sink = opened(posting(receiver, rows_per_request=1, parts=parts))
    put(sink, tmp_path, 0, ROWS[:1])
    put(sink, tmp_path, 1, ROWS[1:])
    put(sink, tmp_path, 0, ROWS)  # after a crash, in one step
    place = f"flow/{'5' * 32}/out"
    assert sorted({key for key, _ in receiver.requests}) == [f"{place}/a/1", f"{place}/a/2", f"{place}/b%2Fc/1"]
    known = {(key, body) for key, body in receiver.requests}
    assert len(known) == 3, "a row that came again had another content"


def test_a_request_of_several_rows_is_known_by_its_content_alone(receiver: Receiver, tmp_path: Path) -> None:
    sink = opened(posting(receiver))
    put(sink, tmp_path, 0, ROWS)
    put(sink, tmp_path, 7, ROWS)
    put(sink, tmp_path, 8, ROWS[:2])
    first, again, fewer = (key for key, _ in receiver.requests)
    assert first == again, "the same rows are the same request"
    assert fewer != first, "a receiver that ignores known requests must look at these rows"
    assert {row["text"] for row in receiver.rows()} == {"one", "two", "three"}


def test_a_function_gets_rows_with_a_key_as_it_gets_others(tmp_path: Path) -> None:
    file = str(tmp_path / "calls")

    def remember(rows: pa.Table, step: int) -> None:
        with open(file, "a") as calls:  # noqa: PTH123 - runs in a task, which knows no module of tests
            calls.write(json.dumps([step, rows.to_pylist()]) + "\n")

    sink = opened(bl.foreach(remember, key=["id", "part"]))
    put(sink, tmp_path, 4, ROWS)
    step, rows = json.loads(Path(file).read_text())
    assert (step, len(rows)) == (4, 3)
    assert sink.describe()["exactly_once_if"] == "the function ignores rows whose id and part it knows"


def test_the_condition_of_exactness_names_what_the_receiver_finds(receiver: Receiver) -> None:
    wanted = {1: "an Idempotency-Key that it knows", 50: "rows whose id and part it knows"}
    for rows, said in wanted.items():
        about = posting(receiver, rows_per_request=rows).describe()
        assert about["exactly_once_if"] == f"the receiver ignores {said}"
        assert about["key"] == ["id", "part"]
    assert "key" not in bl.http_post(receiver.url).describe()


@pytest.mark.parametrize("key", ["id", [], ["id", "id"], [1]])
def test_a_key_that_names_no_columns_is_refused(key: Any) -> None:
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] key is .*: give a list of different column names"):
        bl.foreach(lambda rows, step: None, key=key)


def test_a_key_column_that_is_missing_is_refused(receiver: Receiver) -> None:
    with pytest.raises(InvalidError, match=r"\[SCHEMA_MISMATCH\] key columns \['number'\] are not among \['id'"):
        opened(posting(receiver, key=["id", "number"]))


def test_changes_have_no_identity(receiver: Receiver) -> None:
    changes = SCHEMA.append(pa.field("_weight", pa.int64(), nullable=False))
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] key names columns of out, whose rows are changes: .*leave"):
        posting(receiver).open(replace(context(), schema=changes))
    bl.http_post(receiver.url).open(replace(context(), schema=changes))  # as the message advises


@pytest.mark.parametrize("rows_per_request", [1, 1000])
def test_a_row_without_a_key_stops_the_dataflow_before_anything_of_its_part_is_sent(
    receiver: Receiver, tmp_path: Path, rows_per_request: int
) -> None:
    sink = opened(posting(receiver, rows_per_request=rows_per_request))
    with pytest.raises(DataError, match=r"\[NULL_KEY\] key column part of out holds a NULL at step 3.*--skip out:3"):
        put(sink, tmp_path, 3, [*ROWS, ("d", None, "four")])
    assert receiver.requests == []


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_two_rows_with_one_key_stop_the_dataflow(receiver: Receiver, tmp_path: Path, parts: int) -> None:
    """They are in one part, however many there are."""
    sink = opened(posting(receiver, parts=parts))
    for step in range(8):
        rows = [("a", step, "one"), ("a", step, "another")]
        with pytest.raises(InvalidError, match=r"\[DUPLICATE_KEY\] two rows of out .* the same id, part") as refused:
            put(sink, tmp_path, step, rows)
        assert f"--skip out:{step}" in str(refused.value)
        assert f"a/{step}" not in str(refused.value), "values of rows do not belong in logs"
    assert receiver.requests == []


@pytest.mark.parametrize("parts", [1, 3])
def test_rows_that_are_wholly_equal_are_one_row(receiver: Receiver, tmp_path: Path, parts: int) -> None:
    put(opened(posting(receiver, parts=parts)), tmp_path, 3, [*ROWS, *ROWS, ROWS[1]])
    assert sorted(row["text"] for row in receiver.rows()) == ["one", "three", "two"]


@pytest.mark.parametrize("rows_per_request", [1, 2])
@pytest.mark.parametrize(
    ("answer", "words"), [(400, "answered 400 to"), (500, "answered 500 to"), (0, "did not answer")]
)
def test_an_error_names_a_request_and_no_value_of_a_key(
    receiver: Receiver, tmp_path: Path, answer: int, words: str, rows_per_request: int
) -> None:
    receiver.answers.extend([(answer, {})] * 2)
    sink = opened(posting(receiver, timeout=0.5, rows_per_request=rows_per_request))
    with pytest.raises(UnavailableError, match=rf"{words} request 0 of part 0 of step 5 of out") as failed:
        put(sink, tmp_path, 5, [("secret", 1, "text")])
    assert "secret" not in str(failed.value)


def test_identities_differ_where_keys_do_and_fit_a_header() -> None:
    texts = ["a", "a/b", "ä", "a b", "", '"', "%2F", "x" * 500, "x" * 501]
    found = row_identities(pa.table({"id": texts, "part": [1] * len(texts)}), ["id", "part"], "out", 0)
    assert len(set(found)) == len(texts)
    assert all(each.isascii() and " " not in each and len(each) <= LONGEST for each in found)


def test_numbers_keep_all_their_digits() -> None:
    numbers = [Decimal(f"1234567890123456789.123456789012345678{last}") for last in range(10)]
    decimals = pa.array(numbers, pa.decimal128(38, 19))
    columns = {
        "decimals": decimals,
        "in a struct": pa.StructArray.from_arrays([decimals], ["amount"]),
        "in a list": pa.array([[each] for each in numbers], pa.list_(pa.decimal128(38, 19))),
        "integers": pa.array([2**63 - 1 - each for each in range(10)], pa.int64()),
        "floats": pa.array([0.1 + each * 2**-55 for each in range(10)], pa.float64()),
    }
    for name, column in columns.items():
        different = len(set(map(str, column.to_pylist())))
        found = row_identities(pa.table({name: column.unique() if name == "floats" else column}), [name], "out", 0)
        assert len(set(found)) == different > 1, name
    assert row_identities(pa.table({"d": decimals[:1]}), ["d"], "out", 0) == [str(numbers[0])]


def test_the_twin_counts_a_row_once_however_often_and_in_whatever_step_it_came(tmp_path: Path) -> None:
    def held(twin: Any) -> RowsOfSink:
        write_held({"out": twin}, tmp_path / "held")
        with (tmp_path / "held" / "out.jsonl").open() as lines:
            return RowsOfSink.read(lines)

    makes = bl.foreach(lambda rows, step: None, key=["id", "part"]).capabilities.twin
    assert makes is not None
    twin = makes(tmp_path, "twin")
    opened(twin.sink)  # type: ignore[arg-type]
    put(twin.sink, tmp_path, 0, ROWS[:2])  # type: ignore[arg-type]
    put(twin.sink, tmp_path, 0, ROWS)  # type: ignore[arg-type]
    found = held(twin)
    assert (sum(found.rows.values()), found.repeated, found.torn) == (3, 2, "")
    put(twin.sink, tmp_path, 1, [("a", 1, "other")])  # type: ignore[arg-type]
    assert held(twin).torn.startswith("the row id = a, part = 1 was delivered again with other content")
