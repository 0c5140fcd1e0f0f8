"""Payloads: two types, and the JSON of each in the log."""

from typing import Any

import msgspec
import pytest

from boatlift import DataError
from boatlift.storage.records.payloads import (
    NOTHING,
    Payload,
    RunsPayload,
    SourcePayload,
    payload_of,
    runs_of,
    to_json,
)
from boatlift.storage.records.records import RunRef
from boatlift.storage.records.well_formed import fault_of_value

RUN = RunRef("runs/a", 3, 4, 8, 1, 100, 2048, "ab" * 16)
RUN_JSON = {
    "name": "runs/a",
    "first": 3,
    "last": 4,
    "modulus": 8,
    "residue": 1,
    "rows": 100,
    "size": 2048,
    "digest": "ab" * 16,
}
FORMS: list[tuple[Payload, dict[str, Any]]] = [
    (
        SourcePayload({"files": ["a.csv"]}, 1_700_000_000_000, 7),
        {"position": {"files": ["a.csv"]}, "clock": 1_700_000_000_000, "seed": 7},
    ),
    (
        RunsPayload((RUN,), 100, "0f" * 8, 0, 0),
        {"runs": [RUN_JSON], "rows": 100, "digest": "0f" * 8, "clock": 0, "seed": 0},
    ),
    (RunsPayload((), 0, "0" * 16), {"runs": [], "rows": 0, "digest": "0" * 16}),
    (RunsPayload((RUN,)), {"runs": [RUN_JSON]}),
    (
        RunsPayload((RUN,), tables={"live": (("runs/a",), ()), "fit": ()}),
        {"runs": [RUN_JSON], "tables": {"live": [["runs/a"], []], "fit": []}},
    ),
    (RunsPayload((), bounds=(1, 2), report={"late": 3}), {"runs": [], "bounds": [1, 2], "late": 3}),
    (RunsPayload((), report={"bad": 3}), {"runs": [], "bad": 3}),
]


@pytest.mark.parametrize(("payload", "json"), FORMS)
def test_each_payload_has_the_json_of_the_log_and_is_read_from_it(payload: Payload, json: dict[str, Any]) -> None:
    assert to_json(payload) == json
    assert list(to_json(payload)) == list(json), "the order of the fields is that of the bytes on disk"
    assert payload_of(json) == payload
    assert fault_of_value(to_json(payload)) is None


def test_no_field_of_a_payload_is_left_out() -> None:
    values = {"runs": (RUN,), "digest": "0f" * 8, "tables": {"fit": ()}, "bounds": (1, 2), "history": "h"}
    values |= {"heard": {"rows": 3}, "report": {"own": 4}, "bounds_by": {"rows/more": (5, 6)}}
    names = RunsPayload.__struct_fields__
    whole = RunsPayload(**{name: values.get(name, 7) for name in names})
    assert set(to_json(whole)) == {*names, "own"} - {"report"}, "each number of an operator is a field of its own"
    assert payload_of(to_json(whole)) == whole


@pytest.mark.parametrize(("payload", "json"), FORMS)
def test_the_json_of_a_payload_survives_the_log(payload: Payload, json: dict[str, Any]) -> None:
    assert payload_of(msgspec.msgpack.decode(msgspec.msgpack.encode(to_json(payload)))) == payload


@pytest.mark.parametrize(
    "json",
    [
        None,
        5,
        "x",
        [RUN_JSON],
        {},
        {"position": 5, "clock": 0, "seed": 0},
        {"position": {}, "clock": "x", "seed": 0},
        {"position": {}, "clock": True, "seed": 0},
        {"position": {}, "clock": 0},
        {"runs": [{}]},
        {"runs": [{**RUN_JSON, "more": 1}]},
        {"runs": [], "rows": "none"},
        {"runs": [], "tables": {"live": "runs/a"}},
    ],
)
def test_json_that_is_no_payload_is_corrupt(json: Any) -> None:
    with pytest.raises(DataError, match=r"\[CORRUPT\]"):
        payload_of(json)


def test_the_step_clock_of_a_message_are_read_together_and_a_state_has_none() -> None:
    assert payload_of({"position": {}, "clock": 3, "seed": 4}).step_clock == (3, 4)
    assert payload_of({"runs": [], "clock": 0, "seed": 0}).step_clock == (0, 0)
    with pytest.raises(DataError, match=r"\[CORRUPT\].*`clock` or `seed`"):
        payload_of({"runs": []}).step_clock  # noqa: B018


def test_untyped_json_names_the_same_runs() -> None:
    assert list(runs_of({"runs": [RUN_JSON]})) == [RUN]
    assert list(runs_of({"position": {}})) == list(runs_of(None)) == []


def test_the_message_of_a_time_without_rows_has_no_runs() -> None:
    assert NOTHING == {"runs": [], "rows": 0, "digest": "0" * 16}
