"""What holds now of rows that came message by message, and how it is found."""

import pyarrow as pa
import pytest

from boatlift.errors import DataError
from boatlift.operators.lookup.task import looked_up, newest_rows


def changes(*rows):
    return pa.Table.from_pylist(
        [dict(zip(("k", "v", "_weight"), row, strict=True)) for row in rows],
        schema=pa.schema([("k", pa.string()), ("v", pa.int64()), ("_weight", pa.int64())]),
    )


def held(table):
    return {row["k"]: row["v"] for row in table.to_pylist()}


def test_of_a_key_the_last_message_counts_and_in_it_what_holds():
    messages = [
        changes(("a", 1, 1), ("b", 2, 1)),
        changes(("a", 1, -1), ("a", 5, 1)),
        changes(("a", 5, -1), ("a", 6, 1)),
    ]
    assert held(newest_rows(messages, ["k"], "t", all_known=True)) == {"a": 6, "b": 2}


def test_a_key_that_is_gone_is_remembered_as_long_as_something_may_have_come_before():
    messages = [changes(("b", 2, -1)), changes(("a", 1, 1))]
    assert newest_rows(messages, ["k"], "t", all_known=True).num_rows == 1
    later = newest_rows(messages, ["k"], "t", all_known=False)
    assert held(newest_rows([changes(("b", 2, 1), ("c", 3, 1)), later], ["k"], "t", all_known=True)) == {"a": 1, "c": 3}


def test_it_does_not_matter_how_messages_are_put_together():
    messages = [changes((key, time, 1), (key, time - 1, -1)) for time, key in enumerate("abcabdaeb")]
    whole = held(newest_rows(messages, ["k"], "t", all_known=True))
    for cut in range(1, len(messages)):
        first = newest_rows(messages[:cut], ["k"], "t", all_known=True)
        second = newest_rows(messages[cut:], ["k"], "t", all_known=False)
        assert held(newest_rows([first, second], ["k"], "t", all_known=True)) == whole


def test_two_rows_that_hold_for_one_key_are_refused():
    with pytest.raises(DataError, match=r"\[NOT_UNIQUE\] delays has two rows for one k"):
        newest_rows([changes(("a", 1, 1), ("a", 2, 1))], ["k"], "delays", all_known=True)


def test_rows_without_a_weight_all_hold():
    rows = changes(("a", 1, 1), ("b", 2, 1)).drop_columns(["_weight"])
    assert held(newest_rows([rows], ["k"], "t", all_known=True)) == {"a": 1, "b": 2}


def test_each_row_gets_the_columns_of_its_key_and_null_equals_none():
    rows = pa.table({"id": [1, 2, 3, 4], "k": ["b", None, "a", "b"]})
    table = changes(("a", 1, 1), ("b", 2, 1), (None, 3, 1))
    found = looked_up(rows, table, ["k"], "live_")
    assert found.column_names == ["id", "k", "live_v"]
    assert found.column("live_v").to_pylist() == [2, None, 1, 2]
    assert found.column("id").to_pylist() == [1, 2, 3, 4], "in the order in which they were"


def test_columns_of_any_type_are_found():
    table = pa.table({"k": [1, 2], "list": [[1, 2], []], "pair": [{"x": 1}, None]})
    found = looked_up(pa.table({"k": [2, 1, 3]}), table, ["k"], "t_")
    assert found.column("t_list").to_pylist() == [[], [1, 2], None]
    assert found.column("t_pair").to_pylist() == [None, {"x": 1}, None]
