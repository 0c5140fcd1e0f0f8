"""Lives of stores whose programs change: nothing is lost, nothing doubled, and no sink is between two programs."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from boatlift.console.simulate import case_of, simulate_one, simulate_range
from boatlift.errors import InvalidError
from boatlift.simulation.evolving.life import EvolvingLife
from boatlift.simulation.evolving.operators import minus, total
from boatlift.simulation.evolving.programs import Drawing
from boatlift.simulation.simulation import Case, attempt, shrunk
from support.worlds.mutants import MUTANTS

HAPPENED = (
    *("evolved", "went back", "crash", "overtaken", "old program refused"),
    *("fenced at the start", "refused: PLAN_CHANGED", "came to a copy", "copy refused"),
)


def test_lives_leave_no_trace_of_what_happened_in_them() -> None:
    counts: Counter[str] = Counter()
    modes: Counter[str] = Counter()
    for seed in range(60):
        life = EvolvingLife(seed)
        life.run()
        counts += life.counts
        planned = [line for line in life.trace if line.startswith(("transition ", "consent to "))]
        modes.update(mode for line in planned for mode in MODES if mode in line)
    assert min(counts[what] for what in HAPPENED) > 1, counts
    assert min(modes[mode] for mode in MODES) > 1, modes


MODES = (
    *("fills", "empties", "undone", "emptied", "back to", "was {", "'fill'", "'now'", "'new_rows'"),
    *("tainted", "added", "removed", "changed", "downstream", "'same'", "'replay'", "'carry'"),
)


def test_a_seed_repeats_its_trace_with_its_transitions() -> None:
    traces = []
    for _ in range(2):
        life = EvolvingLife(0)
        life.run()
        traces.append(life.trace)
    assert traces[0] == traces[1]
    assert any(line.startswith("transition ") and "cut {" in line for line in traces[0])
    assert any("has recorded the transition" in line for line in traces[0])


def test_a_sink_comes_back_by_a_name_that_the_store_knows() -> None:
    """By its first name, or by the one that it had last: an older one may be another processor's by then."""
    back = 0
    for seed in range(400):
        rng, drawing = random.Random(seed), Drawing()
        program, last = drawing.program(rng), dict[str, str]()
        for _ in range(30):
            before = {each.label for each in program.sinks}
            last |= {each.label: each.name for each in program.sinks}
            drawn = drawing.changed(rng, program)
            for sink in drawn.sinks:
                if sink.label in last and sink.label not in before:
                    assert sink.name in (sink.label, last[sink.label]), seed
                    back += sink.name != sink.label
            program = rng.choice((program, drawn, drawn))  # a change may be refused
    assert back > 20


def test_the_oracle_notices_a_row_that_is_lost_or_doubled() -> None:
    life = EvolvingLife(0)
    life.run()
    sink = next(each.label for each in life.ideal.program.sinks if life.outside.steps(each.label)[-1:])
    steps = life.outside.steps(sink)
    for other in (total(), total(steps[-1], {(0, 1): 1}), minus(steps[-1])):
        kept, steps[-1] = steps[-1], other
        if other != kept:
            with pytest.raises(AssertionError, match=sink):
                life.ideal.judge()
        steps[-1] = kept
    life.ideal.judge()


def test_a_life_that_fails_is_made_smaller_and_reported_by_its_command() -> None:
    with MUTANTS["evolve-memo"].at_work():
        failure = next(failure for seed in range(40) if (failure := attempt(Case(seed, evolving=True))) is not None)
        smallest = shrunk(failure)
        assert smallest.case.without
        assert attempt(smallest.case) is not None
    without = ",".join(map(str, sorted(smallest.case.without)))
    assert smallest.case.command == f"boatlift simulate --evolving --seed {failure.case.seed} --without {without}"
    assert case_of(failure.case.seed, without, None, evolving=True) == smallest.case


def test_lives_are_run_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate_range(0, 5, jobs=1, quiet=True, evolving=True) == 0
    assert simulate_one(Case(0, evolving=True), trace=True) == 0
    shown = capsys.readouterr().out
    assert "the program is to change" in shown
    assert "owns the dataflow" in shown
    assert shown.splitlines()[-1] == "1 seeds, 0 failed"
    with pytest.raises(InvalidError, match=r"BAD_OPTION.*--epochs"):
        case_of(0, "", 3, evolving=True)
