"""The messages that make up the tables of a lookup are never many, and no row is copied often."""

import uuid

from boatlift.operators.lookup.operator import Table
from boatlift.operators.lookup.steps import runs_of_table, with_message
from boatlift.storage.records.payloads import runs_of
from boatlift.storage.records.records import RunRef
from support.worlds.facts import payload_with

LIVE, FIT = Table("live", "delays", ("origin",)), Table("fit", "fits", ("origin",))


def run_of(rows):
    return RunRef(f"runs/{uuid.uuid4().hex}", 0, 0, 0, 0, rows, rows * 10, "")


class Putting:
    """Adds rows up, and counts those that are copied."""

    def __init__(self):
        self.copied = self.calls = 0

    def __call__(self, messages, first):
        rows = sum(run.rows for message in messages for run in message)
        self.copied += rows
        self.calls += 1
        return run_of(rows)


def after(state, table, message, put=None, *, whole=False):
    return with_message(state, (LIVE, FIT), table, message, whole=whole, put_together=put or Putting())


def test_there_are_never_many_messages_and_no_row_is_copied_often():
    state, put = None, Putting()
    for _ in range(1000):
        state = after(state, LIVE, payload_with([run_of(3)]), put)
        assert len(runs_of_table(state, "live")) <= 11
    assert put.calls <= 1000, "at most one new run a message: none that nobody names is left behind"
    assert sum(run.rows for run in runs_of(state)) == 3000
    assert put.copied <= 3000 * 11


def test_what_is_recomputed_takes_the_place_of_what_was_there():
    pieces = [run_of(5), run_of(6)]
    state = after(after(None, FIT, payload_with([run_of(9)]), whole=True), FIT, payload_with(pieces), whole=True)
    assert runs_of_table(state, "fit") == [pieces], "its pieces are one message"
    assert after(state, FIT, payload_with([]), whole=True)["tables"]["fit"] == [[]]


def test_the_pieces_of_a_message_stay_together_and_tables_apart():
    pieces = [run_of(5), run_of(6)]
    fit = run_of(1)
    state = after(after(None, FIT, payload_with([fit]), whole=True), LIVE, payload_with(pieces))
    assert runs_of_table(state, "live") == [pieces]
    assert runs_of_table(state, "fit") == [[fit]]
    assert sorted(run.name for run in runs_of(state)) == sorted(run.name for run in [*pieces, fit])


def test_a_state_is_not_changed_by_what_comes_after():
    before = after(None, LIVE, payload_with([run_of(1)]))
    kept = runs_of_table(before, "live")
    after(before, LIVE, payload_with([run_of(1)]))
    assert runs_of_table(before, "live") == kept
