"""Which runs are garbage, whatever happens while that is asked."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from boatlift.runtime.saved_runs import SavedRuns


def test_garbage_is_what_is_durable_and_named_by_no_checkpoint() -> None:
    runs = SavedRuns()
    runs.saved(["old", "live"])
    runs.save(["live", "new"])
    runs.saved(["new"])
    assert runs.take_garbage(lambda: {"live"}) == ["old"]
    assert "old" not in runs
    assert "new" in runs
    runs.named(["live", "new"])
    assert runs.take_garbage(lambda: {"new"}) == ["live"]
    assert runs.take_garbage(lambda: {"new"}) == []


def test_a_run_saved_while_the_log_is_asked_is_no_garbage() -> None:
    runs = SavedRuns()

    def live() -> AbstractSet[str]:
        runs.save(["new"])
        runs.saved(["new"])
        return set()

    assert runs.take_garbage(live) == []
    assert "new" in runs


def test_a_checkpoint_that_becomes_durable_while_the_log_is_asked_keeps_its_runs() -> None:
    runs = SavedRuns()
    runs.save(["new"])
    runs.saved(["new"])

    def live() -> AbstractSet[str]:
        answer: set[str] = set()  # the checkpoint came just after
        runs.named(["new"])
        return answer

    assert runs.take_garbage(live) == []
    assert "new" in runs
