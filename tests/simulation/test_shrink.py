"""A seed that fails is made smaller, and told by the command that repeats it."""

import json

import pytest

from boatlift.console.simulate import case_of, simulate_one, simulate_range
from boatlift.errors import InvalidError
from boatlift.simulation.simulation import Case, attempt, shrunk
from support.worlds.mutant import SEEDS
from support.worlds.mutants import MUTANTS

FOUND = json.loads(SEEDS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["discarded", "order", "under-way"])
def test_a_failure_is_made_smaller(name):
    with MUTANTS[name].at_work():
        failure = next(failure for failure in map(attempt, map(Case, range(200))) if failure is not None)
        seed = failure.case.seed
        smallest = shrunk(failure)
        assert smallest.case.seed == seed
        whole, less = failure.case.simulation(), smallest.case.simulation()
        assert less.recipe.epochs <= whole.recipe.epochs
        assert len(smallest.case.without) > 0 or less.recipe.epochs < whole.recipe.epochs
        assert attempt(smallest.case) is not None, "the smaller case fails too"
        without = ",".join(map(str, sorted(smallest.case.without)))
        again = case_of(seed, without, smallest.case.epochs)
        assert again == smallest.case
        assert str(attempt(again)) == str(smallest)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_range_ends_with_a_line_that_says_how_many_failed(capsys, jobs):
    assert simulate_range(0, 5, jobs=jobs, quiet=True) == 0
    assert capsys.readouterr().out.splitlines() == ["5 seeds, 0 failed"]
    with MUTANTS["release"].at_work():
        assert simulate_range(0, 5, jobs=jobs, quiet=True) == 1
    *failed, last = capsys.readouterr().out.splitlines()
    count = sum("again: boatlift simulate --seed" in line for line in failed)
    assert last == f"5 seeds, {count} failed"
    assert count > 0


def test_one_seed_is_shown_with_what_it_is(capsys):
    assert simulate_one(Case(0), trace=True) == 0
    shown = capsys.readouterr().out
    assert "source0: source" in shown
    assert "CommitSink(" in shown
    assert shown.splitlines()[-1] == "1 seeds, 0 failed"


def test_a_failing_life_is_shown_small(capsys):
    with MUTANTS["release"].at_work():
        assert simulate_one(Case(FOUND["release"]), trace=False) == 1
    *_, again, last = capsys.readouterr().out.splitlines()
    assert again.startswith(f"  again: boatlift simulate --seed {FOUND['release']}")
    assert last == "1 seeds, 1 failed"


def test_options_that_make_no_sense_are_refused():
    with pytest.raises(InvalidError, match=r"BAD_OPTION.*--jobs 0"):
        simulate_range(0, 5, jobs=0, quiet=True)
    with pytest.raises(InvalidError, match="BAD_OPTION"):
        case_of(0, "1,x", None)
    with pytest.raises(InvalidError, match="BAD_OPTION"):
        case_of(0, "", 0)
