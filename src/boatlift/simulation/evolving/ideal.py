"""The oracle of a life: every program, executed synchronously over the recorded input.

It shares no code with the plan of a transition: it compares programs itself, executes each step once, and takes from
the log only what was recorded of choices: the positions of sources, which transition was made when, and after which of
its own steps each sink goes on. It holds itself to the newest program, executed from nothing, wherever no processor
began from some step on. At each restore point it keeps a copy of itself, from which it goes on after a way back.

It knows processors by the names that they had first, so that another name changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass

from boatlift.simulation.evolving.operators import Row, RowWeights, minus, total
from boatlift.simulation.evolving.outside import in_steps
from boatlift.simulation.evolving.programs import FROM_PAST, KEPT, LOOSE, EvolvingPart, EvolvingProgram
from boatlift.storage.records.facts import Determinant, GarbageCollection, StepDigest, Truncation, survives
from boatlift.storage.records.records import Evolved, PointsDropped, Record, RestorePoint
from boatlift.times import last_number

Proposal = tuple[EvolvingProgram, Mapping[str, str]]
"""A program, and the modes of the change to it."""

ROWS = ":rows"  # ends the name of the unit of a source
OUTLIVE_A_COPY = ("proposed", "from_copies", "evolved", "ways_back", "rows", "contents", "_numbers")
OUTLIVE_A_WAY_BACK = (*OUTLIVE_A_COPY, "saved")


@dataclass(frozen=True, slots=True)
class _Segment:
    """A processor from some step on, with the state after that step."""

    after: int
    part: EvolvingPart
    state: RowWeights


class Ideal:
    """What each sink must show, as far as the log has come.

    Args:
        rows: Source to all its rows.
        contents: Returns the steps that the place of a sink holds.

    Attributes:
        program: The newest one that the log knows.
        proposed: The id of each transition that a process was started with, to what it shall be.
        from_copies: The ids of those that take sinks to a copy that was restored.
        evolved: The number of transitions so far.
        ways_back: The number of those that went back.
        partial: The sinks that did not get the whole past.
        saved: Restore point to the oracle there, in the order of time.
    """

    def __init__(self, program: EvolvingProgram) -> None:
        self.program, self.proposed, self.evolved, self.ways_back = program, dict[str, Proposal](), 0, 0
        self._plain, program = program.plain, program.plain
        self.saved: dict[str, Ideal] = {}
        self.from_copies: set[str] = set()
        self._numbers: dict[str, dict[int, int]] = {}
        self.rows: dict[str, list[Row]] = {}
        self.contents: Callable[[str], list[RowWeights]] = lambda _sink: []
        self._closed: dict[str, dict[int, tuple[int, int] | None]] = {}
        self._line = {name: [_Segment(-1, part, {})] for name, part in program.parts.items() if not part.is_sink}
        self._past: dict[str, tuple[int, RowWeights]] = dict.fromkeys(self._line, (-1, {}))
        self._steps: dict[tuple[str, int], tuple[RowWeights, RowWeights]] = {}
        self._executed: dict[str, int] = {}
        self._ahead: dict[str, int] = {}
        self._based: dict[str, tuple[int, RowWeights]] = {}
        self._shown: dict[tuple[str, int], RowWeights] = {}
        self._impure = {name for name in self._line if _is_impure(program, name)}
        self.partial: set[str] = set()
        self.deliveries: dict[str, dict[int, RowWeights]] = {}

    # -- what becomes durable and visible

    def note(self, record: Record) -> None:
        match record:
            case Determinant(source, int(time), _, outcome) if source in self.program.sources:
                self._close(self._first(source), time, outcome)
            case Truncation():
                for name in self.program.sources:
                    source, facts = self._first(name), dict[int, Determinant]()
                    closed = self._closed.get(source, {})
                    facts = {time: Determinant(name, time, None, None) for time in closed}
                    self._closed[source] = {t: closed[t] for t, fact in facts.items() if survives(fact, record)}
            case StepDigest(unit, int(time)):
                self._has_executed(unit, time)
            case GarbageCollection(states):  # of steps without input no digest is recorded
                for unit, frontier in states.items():
                    self._has_executed(unit, last_number(frontier))
            case Evolved():
                self._evolve(record)
            case RestorePoint(name):
                self.saved = {**{each: kept for each, kept in self.saved.items() if each != name}, name: self.copied()}
            case PointsDropped(names):
                self.saved = {each: kept for each, kept in self.saved.items() if each not in names}
            case _:
                pass

    def knows(self, sink: str) -> bool:
        """Return whether the newest program has a sink."""
        return sink in self._plain.parts

    def shown(self, sink: str, step: int, content: RowWeights) -> None:
        """Compare what a sink shows after one of its own steps; a sink that has gone may show anything."""
        if sink in self._plain.parts:
            due = self.content(sink, step)
            assert content == due, f"{sink} shows after its step {step} {_diff(content, due)}"

    def delivered(self, sink: str, step: int, rows: RowWeights) -> None:
        """Compare a delivery, which may come again."""
        if sink not in self._plain.parts:
            return
        since = self._numbers.setdefault(sink, {}).setdefault(step, self.ways_back)
        assert since == self.ways_back, f"{sink} is delivered {step}, which it had before a way back"
        step += self._ahead.get(sink, 0)
        due = self._out(self._plain.parts[sink].reads[0], step)
        assert rows == due, f"{sink} is delivered at {step} {_diff(rows, due)}"
        before = self.deliveries.setdefault(sink, {})
        again = step in before and step != max(before)
        assert not (again and rows), f"{sink} is delivered {step} again after {max(before)}"
        before[step] = rows

    def content(self, sink: str, step: int) -> RowWeights:
        """Return what a sink must show after one of its own steps."""
        at, based = self._based.get(sink, (-1, {}))
        assert step >= at, f"{sink} has its step {step} after a transition, and began with {at + 1}"
        if step == at:
            return based
        if (sink, step) not in self._shown:
            rows = self._out(self._plain.parts[sink].reads[0], step + self._ahead.get(sink, 0))
            self._shown[sink, step] = total(self.content(sink, step - 1), rows)
        return self._shown[sink, step]

    def taken(self, source: str) -> int:
        """Return the number of rows of a source that were taken."""
        return max((each[1] for each in self._closed.get(source, {}).values() if each is not None), default=0)

    def judge(self) -> None:
        """Compare the end: each sink has every step, and shows what the newest program gives from nothing.

        Raises:
            AssertionError: a sink lacks something, or shows something else.
        """
        for part in self._plain.sinks:
            last, name = self._last_above(part.name), part.name
            for source in self._plain.above(name):
                assert self.taken(source) == len(self.rows[source]), f"rows of {source} were not taken"
            if part.kind == LOOSE:
                since, _ = self._based.get(name, (-1, {}))
                found = {step for step in self.deliveries.get(name, {}) if step > since}
                due = {step for step in range(since + 1, last + 1) if self._out(part.reads[0], step)}
                assert due <= found, f"{name} was delivered {sorted(found)}, and not {sorted(due - found)}"
                continue
            held, own = len(self.contents(name)) - 1, last - self._ahead.get(name, 0)
            assert held == own, f"{name} holds {held} as its newest step, and not {own}"
            content = total(*self.contents(name))
            assert content == self.content(name, own), f"{name} shows {_diff(content, self.content(name, own))}"
            if name not in self.partial and part.reads[0] not in self._impure:
                whole = self._whole(part.reads[0], {source: len(rows) for source, rows in self.rows.items()})
                assert content == whole, f"{name} shows {_diff(content, whole)}, by the program from nothing"

    # -- steps

    def _has_executed(self, unit: str, time: int) -> None:
        self._executed[self._first(unit)] = max(time, self._executed.get(self._first(unit), -1))

    def _first(self, name: str) -> str:
        """Return the name that a processor, or the operator of a unit, had first."""
        bare = name.removesuffix(ROWS)
        return (self.program.parts[bare].label if bare in self.program.parts else bare) + name[len(bare) :]

    def _last_above(self, name: str) -> int:
        """Return the last step that the sources of a processor have closed."""
        return max(self._last_closed(source) for source in self._plain.above(name))

    def _last_closed(self, source: str) -> int:
        return max(self._closed.get(source) or (-1,))

    def _close(self, source: str, time: int, outcome: object) -> None:
        taken = None
        if isinstance(outcome, dict):
            taken = (outcome["position"]["start"], outcome["position"]["end"])
            earlier = [each[1] for t, each in self._closed.get(source, {}).items() if t < time and each is not None]
            assert taken[0] == max(earlier, default=0), f"{source} takes {taken} at {time}, after {earlier}"
        before = self._closed.setdefault(source, {}).setdefault(time, taken)
        assert before == taken, f"{source} takes {taken} at {time}, and took {before}"

    def _segment(self, name: str, time: int) -> int:
        return max(number for number, each in enumerate(self._line[name]) if each.after < time)

    def _out(self, name: str, time: int) -> RowWeights:
        return self._step(name, time)[1]

    def _step(self, name: str, time: int) -> tuple[RowWeights, RowWeights]:
        """Return the state after a step, and its rows; earlier steps first, so that nothing is deep."""
        segment = self._line[name][self._segment(name, time)]
        for each in range(segment.after + 1, time + 1):
            if (name, each) in self._steps:
                continue
            if segment.part.kind == "source":
                taken = self._closed.get(name, {}).get(each)
                self._steps[name, each] = {}, {} if taken is None else dict.fromkeys(self.rows[name][slice(*taken)], 1)
                continue
            state = segment.state if each == segment.after + 1 else self._steps[name, each - 1][0]
            inputs = [self._out(read, each) for read in segment.part.reads]
            self._steps[name, each] = segment.part.operator().step(state, inputs)
        return self._steps[name, time]

    def _state(self, name: str, time: int) -> RowWeights:
        newest = self._line[name][-1]
        return newest.state if time <= newest.after else self._step(name, time)[0]

    def _integral(self, name: str, upto: int) -> RowWeights:
        """Return all rows of a processor up to a step."""
        begin, rows = self._past[name]
        return total(rows, *(self._out(name, time) for time in range(begin + 1, upto + 1)))

    def _whole(self, name: str, ends: Mapping[str, int], program: EvolvingProgram | None = None) -> RowWeights:
        """Return the rows of a processor over all rows of sources, from nothing; none of those that depend on steps."""
        part = (program or self._plain).parts[name]
        if part.kind == "source":
            return dict.fromkeys(self.rows.get(name, [])[: ends.get(name, 0)], 1)
        return part.operator().step({}, [self._whole(read, ends, program) for read in part.reads])[1]

    # -- transitions

    def copied(self) -> Ideal:
        """Return a copy that does not change with this one."""
        other = copy(self)
        vars(other).update({name: each.copy() for name, each in vars(self).items() if isinstance(each, dict | set)})
        vars(other)["_closed"] = {source: dict(closed) for source, closed in self._closed.items()}
        vars(other)["saved"] = {name: each.copied() for name, each in self.saved.items()}
        return other

    def become(self, there: Ideal, outlive: Collection[str] = OUTLIVE_A_COPY) -> None:
        """Know what another oracle does, and of what it does not take back what this one knows."""
        vars(self).update({**vars(there), **{name: each for name, each in vars(self).items() if name in outlive}})

    def _go_back(self, point: str) -> None:
        before = list(self.saved)
        self.become(self.saved[point].copied() if point else Ideal(self.program), OUTLIVE_A_WAY_BACK)
        self.saved = {name: self.saved[name] for name in before[: before.index(point) + 1 if point else 0]}
        self.ways_back += 1

    def _rename(self, was: Mapping[str, str]) -> None:
        """Let programs have other names; all else is known by the first names."""
        names = {old: new for new, old in was.items()}
        self.program = self.program.renamed(names)
        for there in self.saved.values():
            there.program = there.program.renamed(names)

    def _evolve(self, record: Evolved) -> None:
        self._rename(record.was)
        program, given = self.proposed[record.id]
        committed = {program.parts[name].label: time for name, time in record.committed.items()}
        held: dict[str, RowWeights] | None = None
        if record.back is not None:
            self._go_back(record.back)
        elif record.id in self.from_copies:
            self.ways_back += 1
        if record.back is not None or record.id in self.from_copies:
            there = {part.name for part in self._plain.sinks if part.kind != LOOSE} & committed.keys()
            held = {name: self.content(name, committed[name] - self._ahead.get(name, 0)) for name in there}
        old, new, modes = self._plain, program.plain, {program.parts[name].label: mode for name, mode in given.items()}
        for fact in record.facts:
            if isinstance(fact, Determinant) and fact.outcome is None and fact.processor in program.sources:
                assert isinstance(fact.time, int)
                self._close(program.parts[fact.processor].label, fact.time, None)
        if held is None:
            self._check_nothing_waits([part for part in new.sinks if modes.get(part.name) == "now"])
        touched, moved = _changes(old, new, modes)
        cuts = self._cuts(old, new, touched)
        ends = {source: self.taken(source) for source in self._closed}
        replayed = self._replayed(new, ends) if "replay" in modes.values() else {}
        impure: set[str] = set()
        changed_after: dict[str, int] = {}
        for name, part in new.parts.items():
            if part.is_sink or (cut := cuts.get(name)) is None:
                impure |= {name} & self._impure
                continue
            mode = modes.get(name, "fill") if name in touched else "stands"
            after = min((changed_after[read] for read in part.reads if read in changed_after), default=None)
            if mode != "stands":
                after = self._begin(name, part, mode, cut, old, replayed)
            if after is not None:
                changed_after[name] = after
                self._steps = {key: each for key, each in self._steps.items() if key[0] != name or key[1] <= after}
            if (
                part.kind == "chain"
                or mode in ("now", "carry")
                or (mode == "stands" and name in self._impure)
                or any(read in impure for read in part.reads)
            ):
                impure.add(name)
            if name not in impure:
                whole, past = self._whole(name, ends, new), self._integral(name, cut)
                assert past == whole, f"the oracle's {name} gives {_diff(past, whole)}"
        kept = [name for name, part in new.parts.items() if not part.is_sink]
        self._line = {name: self._line[name] for name in kept}
        self._past = {name: self._past[name] for name in kept}
        self._steps = {key: each for key, each in self._steps.items() if key[0] in self._line}
        self._impure = impure
        self._forget(new, changed_after)
        numbers = {program.parts[name].label: each.ahead for name, each in record.sinks.items()}
        numbers = {program.parts[name].label: 0 for name in record.forgotten if name in program.parts} | numbers
        self._plain, self.program, self.evolved = new, program, self.evolved + 1
        begin = {part.name: cuts.get(part.reads[0], -1) for part in new.sinks} | committed
        self._sinks(begin, committed.keys(), numbers, old, modes, moved, held)

    def _check_nothing_waits(self, sinks: Iterable[EvolvingPart]) -> None:
        """Check that sinks which go on from now on show all that the old program gives: nothing else hands it over."""
        for name in (part.name for part in sinks if part.kind != LOOSE and self._plain.parts.get(part.name)):
            own = self._last_above(name) - self._ahead.get(name, 0)
            shown, due = total(*self.contents(name)), self.content(name, own)
            assert shown == due, f"{name} goes on from now on, and shows {_diff(shown, due)}"

    def _replayed(self, program: EvolvingProgram, ends: Mapping[str, int]) -> dict[str, tuple[RowWeights, RowWeights]]:
        """Return the state and all rows of each processor, executed from nothing in steps that are divided anew."""
        made: dict[str, tuple[RowWeights, RowWeights]] = {}
        steps = {name: in_steps(self.rows.get(name, []), ends.get(name, 0)) for name in program.sources}
        for at in range(max(map(len, steps.values()))):
            out: dict[str, RowWeights] = {}
            for name, part in program.parts.items():
                if part.is_sink:
                    continue
                state, rows = made.get(name, ({}, {}))
                if part.kind == "source":
                    out[name] = steps[name][at] if at < len(steps[name]) else {}
                else:
                    state, out[name] = part.operator().step(state, [out[read] for read in part.reads])
                made[name] = state, total(rows, out[name])
        return made

    def _begin(
        self,
        name: str,
        part: EvolvingPart,
        mode: str,
        cut: int,
        old: EvolvingProgram,
        replayed: Mapping[str, tuple[RowWeights, RowWeights]],
    ) -> int:
        """Let a processor have other code, or another state, and return the step after which it has."""
        line = self._line.get(name, []) if name in old.parts else []
        state: RowWeights = {}
        if part.kind == "source":
            line, self._past[name] = [], (cut, {})
        elif mode == "fill":
            state, rows = part.operator().step({}, [self._integral(read, cut) for read in part.reads])
            self._past[name] = (cut, rows)
        elif mode == "replay":
            state, rows = replayed.get(name, ({}, {}))
            self._past[name] = (cut, rows)
        elif not line:
            self._past[name] = (cut, {})
        else:
            if mode != "now" or part.kind not in KEPT:  # steps that wait are executed by the new code
                unit = next(each for each in old.plan.units.values() if name in (one.name for one in each.operators))
                cut = max(min(cut, self._executed.get(unit.name, -1)), line[-1].after)
                state = self._state(name, cut)
                if mode == "relayout":
                    state, _ = part.operator().step({}, [self._integral(read, cut) for read in part.reads])
            self._past[name] = (cut, self._integral(name, cut))
        self._line[name] = [*line, _Segment(cut, part, state)]
        return cut

    def _forget(self, new: EvolvingProgram, changed_after: Mapping[str, int]) -> None:
        """Forget what sinks that stand were to show after steps that come out otherwise now."""
        for part in new.sinks:
            last = changed_after.get(part.reads[0])
            if last is not None:
                own = last - self._ahead.get(part.name, 0)
                self._shown = {k: each for k, each in self._shown.items() if k[0] != part.name or k[1] <= own}

    def _sinks(
        self,
        begin: Mapping[str, int],
        handed: Collection[str],
        numbers: Mapping[str, int],
        old: EvolvingProgram,
        modes: Mapping[str, str],
        moved: set[str],
        held: Mapping[str, RowWeights] | None,
    ) -> None:
        """Let sinks begin with what they get.

        Args:
            begin: The last step that each is to have.
            handed: Those that the store hands something; one may have gone, and be back by the name that it had first.
            numbers: By how much the dataflow's numbers are ahead of a sink's own from now on.
            held: On a way back what sinks held there.
        """
        for part in self._plain.sinks:
            name, up = part.name, part.reads[0]
            stays = old.parts.get(name) == part and up not in moved and modes.get(name) != "fill"  # by request
            if stays and held is None and name not in handed:
                continue
            cut, mode = begin[name], modes.get(name, "fill")
            self._shown = {key: each for key, each in self._shown.items() if key[0] != name}
            self._ahead[name] = numbers.get(name, self._ahead.get(name, 0))
            if part.kind == LOOSE:
                self._based[name] = (cut, {})
                self.deliveries[name] = {}
                continue
            at = cut - self._ahead[name]
            there = total(*self.contents(name)[: at + (mode == "now")])
            rest = total(self._integral(up, cut), minus(there))
            rows = {row: weight for row, weight in rest.items() if weight > 0 or mode != "new_rows"}
            self._based[name] = (at, there if mode == "now" else total(there, rows))
            if stays and mode == "fill" and held is not None and name in self.partial:
                self._based[name] = (at, held[name])
                continue
            if mode != "now":
                self._shown[name, at] = self._based[name][1]
            self.partial = (self.partial - {name}) | ({name} if mode != "fill" else set())

    def _cuts(self, old: EvolvingProgram, new: EvolvingProgram, touched: set[str]) -> dict[str, int]:
        """Return the cut of each processor of the parts of the graph that a change concerns."""
        parts = [*old.parts.values(), *new.parts.values()]
        removed = {name for name in old.parts if name not in new.parts}
        group = {each.name: each.name for each in parts}

        def root(name: str) -> str:
            return name if group[name] == name else root(group[name])

        for each in parts:
            for read in each.reads:
                group[root(each.name)] = root(read)
        concerned = {root(name) for name in (*touched, *removed)}
        cuts: dict[str, int] = {}
        for name in new.parts:
            if root(name) in concerned:
                sources = [source for source in (*old.sources, *new.sources) if root(source) == root(name)]
                cuts[name] = max(map(self._last_closed, sources))
        return cuts


def _is_impure(program: EvolvingProgram, name: str) -> bool:
    """Return whether the rows of a processor depend on how its input came in steps."""
    part = program.parts[name]
    return part.kind == "chain" or any(_is_impure(program, read) for read in part.reads)


def _changes(old: EvolvingProgram, new: EvolvingProgram, modes: Mapping[str, str]) -> tuple[set[str], set[str]]:
    """Return what a change concerns, and of that all whose past rows change."""
    touched, moved = set[str](), set[str]()
    for name, part in new.parts.items():
        before = old.parts.get(name)
        stands = part.means(before) and moved.isdisjoint(part.reads)
        if not stands or (before is not None and before.text != part.text and modes.get(name) != "same"):
            touched.add(name)
            if part.kind != "source" and not part.is_sink and modes.get(name, "fill") in FROM_PAST:
                moved.add(name)
    return touched, moved


def _diff(found: RowWeights, due: RowWeights) -> str:
    differs = _few(total(found, minus(due)))
    return f"other rows than it must: {differs}"


def _few(rows: RowWeights) -> str:
    shown = [f"{weight:+} of {row}" for row, weight in sorted(rows.items())[:4]]
    return ", ".join(shown) + (f" and {len(rows) - 4} more" if len(rows) > 4 else "")
