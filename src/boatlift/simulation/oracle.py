"""The oracle: one execution without failures, with the surviving determinants, must have the same effects.

The oracle shares no code with the runtime. Effects are traced back, node by node, to their whole past; no processor may
have two pasts. Then the program is executed again from the determinants found there, one processor after the other,
from the first time to the last.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from boatlift.dataflow import batch_of
from boatlift.simulation.identified import Content, Row, all_rows
from boatlift.simulation.processors import NOTHING, SimulatedProcessor, rows_of
from boatlift.simulation.recipes import COUNTING, Role, Wire
from boatlift.simulation.world import World, sends

Messages = dict[Any, str]  # Sender's time to digest, of one edge


def judge(world: World) -> None:
    """Compare the effects with one execution without failures.

    Raises:
        AssertionError: the effects belong to no single execution, or one is lost.
    """
    survived = _survivors(world)
    ends = {name: [recorded[n].taken for n in sorted(recorded)] for name, recorded in world.determinants.items()}
    execution = _Execution(world, survived, ends)
    for name, part in world.recipe.parts.items():
        if name in world.rows:
            _compare_rows(name, world.rows[name], all_rows(world.recipe, world.items, name))
        elif part.role is Role.SINK:
            expected = execution.arrivals(name)
            found = {time: sorted(effect) for time, effect in world.effects[name].items()}
            if found != expected:
                times = sorted(t for t in {*found, *expected} if found.get(t) != expected.get(t))
                raise AssertionError(
                    f"{name} holds {[found.get(t) for t in times]} at {times}, one failure-free execution gives "
                    f"{[expected.get(t) for t in times]}"
                )


def _compare_rows(name: str, found: Mapping[Row, Content], expected: Mapping[Row, Content]) -> None:
    if lost := expected.keys() - found.keys():
        raise AssertionError(f"{name} was never delivered {sorted(lost)}")
    if strange := found.keys() - expected.keys():
        raise AssertionError(f"{name} was delivered {sorted(strange)}, which no execution gives")
    if other := [row for row, content in expected.items() if found[row] != content]:
        raise AssertionError(f"{name} was delivered {other} with other contents: {[found[row] for row in other]}")


def _survivors(world: World) -> dict[str, dict[Any, SimulatedProcessor]]:
    """Return, by processor and time, the nodes that the effects depend on."""
    visible = (digest for effects in world.effects.values() for effect in effects.values() for _, _, digest in effect)
    survived: dict[str, dict[Any, SimulatedProcessor]] = defaultdict(dict)
    for node in world.nodes.past_of(visible):
        other = survived[node.processor].setdefault(node.time, node)
        if other != node:
            raise AssertionError(f"the effects belong to no single execution: {node} and {other}")
    for source, items in world.items.items():
        recorded = world.determinants[source]
        times = {time: world.nodes[made.outcome["node"]] for time, made in recorded.items() if made.outcome is not None}
        if strange := set(survived[source].values()) - set(times.values()):
            raise AssertionError(f"{source} has no record of {strange}, which became visible")
        survived[source] = times
        nodes = [times[time] for time in sorted(times)]
        parts = [node.determinant for node in nodes]
        begins, ends = [0, *(end for _, end in parts)], [*(start for start, _ in parts), items]
        if begins != ends or [node.time for node in nodes] != list(range(world.recipe.epochs)):
            raise AssertionError(f"{source} was divided into {parts}, of {items} items")
        if sorted(recorded) != list(range(len(recorded))):
            raise AssertionError(f"{source} closed {sorted(recorded)}")
    _check_steps_without_input(world, survived)
    return survived


def _check_steps_without_input(world: World, survived: dict[str, dict[Any, SimulatedProcessor]]) -> None:
    """Check that sources that meet have the same steps, and that each step has input of one of them."""
    for group in set(world.recipe.common_steps().values()):
        steps = {len(world.determinants[source]) for source in group}
        if len(steps) > 1:
            raise AssertionError(f"{sorted(group)} do not have the same steps: {steps}")
        # What a recovery took back comes again, perhaps at a later step: it may leave a step without input behind.
        with_input: set[Any] = set().union(*(survived[source].keys() | world.undone[source] for source in group))
        if not with_input >= set(range(*steps)):
            raise AssertionError(f"{sorted(group)} closed {steps} steps, and had input at {sorted(with_input)} alone")


class _Execution:
    """All results of a program, given its determinants."""

    def __init__(
        self, world: World, survived: dict[str, dict[Any, SimulatedProcessor]], ends: dict[str, list[Any]]
    ) -> None:
        recipe, self._nodes = world.recipe, world.nodes
        self._recipe, self._survived, self._ends = recipe, survived, ends
        self._sent: dict[str, Messages] = {wire.name: {} for wire in recipe.wires}
        self._empty: dict[str, set[int]] = {}
        self._numbers: dict[str, dict[Any, int]] = {}
        self._unknown: set[str | None] = set()
        self._short: set[str] = set()
        self._untaken: dict[str, int] = {}
        for name, part in recipe.parts.items():
            match part.role:
                case Role.SOURCE:
                    for time, node in sorted(survived[name].items()):
                        self._send(name, time, node)
                    self._send_nothing(name, world.determinants[name].keys() - survived[name].keys())
                case Role.ORDERED:
                    self._in_order(name)
                case Role.BATCH | Role.GATHERED:
                    self._in_batches(name)
                case Role.HEAD if part.depth == 1:
                    self._loop(name)
                case Role.STRUCTURED:
                    state, length = None, self._length(name)
                    for time, effect in sorted(self.arrivals(name).items()):
                        if time < length:
                            state = self._run(name, time, effect, state)
                    empty = (self._empty.get(wire.source, set()) for wire in recipe.inputs(name))
                    self._send_nothing(name, set.intersection(*empty))
                case _:
                    pass

    def _length(self, name: str) -> float:
        """Return how many times of a processor are complete: of two sequences, those of the shorter one.

        Messages that led to nothing visible were taken too; how many there are is unknown if a sender is short.
        """
        match self._recipe.parts[name].role:
            case Role.ORDERED if self._is_partial(name):
                return math.inf
            case Role.ORDERED:
                return len(self._numbers[name]) + self._untaken.get(name, 0)
            case Role.STRUCTURED:
                return min(self._length(wire.source) for wire in self._recipe.inputs(name))
            case _:
                return math.inf

    def _send_nothing(self, name: str, times: set[int]) -> None:
        """Let a processor have no message at some times: for a processor in arrival order that is an event."""
        self._empty[name] = times
        for wire in self._recipe.outputs(name):
            if self._recipe.parts[wire.target].role is Role.ORDERED:
                self._sent[wire.name].update(dict.fromkeys(times, NOTHING))

    def arrivals(self, name: str) -> dict[Any, list[tuple[str, Any, str]]]:
        """Return the messages that arrive at a processor of epochs, by epoch."""
        arrived: dict[Any, list[tuple[str, Any, str]]] = defaultdict(list)
        for wire in self._recipe.inputs(name):
            for time, digest in self._sent[wire.name].items():
                arrived[self._epoch(wire, time)].append((wire.name, time, digest))
        return {time: sorted(effect) for time, effect in arrived.items()}

    def _epoch(self, wire: Wire, time: Any) -> int:
        match self._recipe.parts[wire.source].role:
            case Role.ORDERED:
                return self._numbers[wire.source][time]
            case Role.BATCH if self._recipe.parts[wire.target].role not in COUNTING:
                return int(self._ends[wire.source][time])
            case Role.HEAD | Role.BODY:
                return int(time[0])
            case _:
                return int(time)

    def _run(self, name: str, time: Any, effect: Iterable[tuple[str, Any, str]], state: str | None) -> str | None:
        part, known, taken = self._recipe.parts[name], self._survived[name].get(time), tuple(effect)
        determinant = None if part.deterministic or known is None else known.determinant
        node = SimulatedProcessor(name, time, determinant, taken, state)
        # A determinant without a visible effect is unknown; so are its consequences.
        led_by = {digest for _, _, digest in taken} | {state}
        unknown = (known is None and not part.deterministic) or not self._unknown.isdisjoint(led_by)
        if unknown:
            self._unknown.add(node.digest)
            if part.hesitates and self._unknown.isdisjoint(led_by):
                self._check_silence(node)
        self._send(name, time, node, unknown=unknown)
        return node.digest if part.keeps else None

    def _check_silence(self, node: SimulatedProcessor) -> None:
        """Check that a step without an effect was executed, and sent no message by its determinant."""
        more = self._is_partial(
            node.processor
        )  # then it may have taken messages that are unknown here, and its state depends on them
        ran = [n for n in self._nodes.at(node.processor, node.time) if more or n.state == node.state]
        ran = [n for n in ran if self._took(n, node)]
        wires = self._recipe.outputs(node.processor)
        if not any(all(not sends(self._recipe, w, n.time, n.digest) for w in wires) for n in ran):
            raise AssertionError(
                f"{node.processor} never sent nothing at {node.time}: its message is lost, or it never ran"
            )

    def _took(self, ran: SimulatedProcessor, node: SimulatedProcessor) -> bool:
        """Return whether two nodes have the same inputs, except messages of senders whose last steps are unknown."""
        sources = {wire.name: wire.source for wire in self._recipe.inputs(node.processor)}

        def known_of(inputs: Iterable[tuple[str, Any, str]]) -> set[tuple[str, Any, str | None]]:
            return {(edge, time, None if self._is_partial(sources[edge]) else digest) for edge, time, digest in inputs}

        expected, took = known_of(node.inputs), known_of(ran.inputs)
        more = took - expected
        known = any(time in self._sent[edge] or not self._is_short(sources[edge]) for edge, time, _ in more)
        return expected <= took and not known

    def _is_partial(self, name: str) -> bool:
        """Return whether a processor may have taken messages that are unknown here."""
        return any(self._is_short(wire.source) for wire in self._recipe.inputs(name) if not wire.back)

    def _is_short(self, name: str) -> bool:
        """Return whether the last steps of a processor, or of a sender of it, are unknown."""
        return name in self._short or self._is_partial(name)

    def _send(self, name: str, time: Any, node: SimulatedProcessor, *, unknown: bool = False) -> None:
        digest, hesitates = node.digest, self._recipe.parts[name].hesitates
        for wire in self._recipe.outputs(name):
            if sends(self._recipe, wire, time, digest) and not (unknown and (hesitates or wire.back)):
                self._sent[wire.name][time] = digest

    def _in_order(self, name: str) -> None:
        self._numbers[name] = {}
        queues = {
            w.name: sorted((self._epoch(w, t), t, d) for t, d in self._sent[w.name].items())
            for w in self._recipe.inputs(name)
        }
        senders = {wire.name: wire.source for wire in self._recipe.inputs(name)}
        state: str | None = None
        while (time := self._next_event(name, state)) is not None:
            edge, n = time
            if not queues[edge] and not self._recipe.parts[name].keeps and self._is_short(senders[edge]):
                self._short.add(name)  # the last message had no visible effect, and is unknown
                break
            if n != len(self._numbers[name]) - sum(k[0] != edge for k in self._numbers[name]) or not queues[edge]:
                raise AssertionError(f"{name} took {(edge, n)} after {list(self._numbers[name])}")
            _, sender_time, digest = queues[edge].pop(0)
            self._numbers[name][edge, n] = len(self._numbers[name])
            state = self._run(name, (edge, n), [(edge, sender_time, digest)], state)
        if any(queues.values()):
            self._short.add(name)
            self._untaken[name] = sum(map(len, queues.values()))
            if not self._swallowed(name):
                raise AssertionError(f"{name} never took {queues}")

    def _next_event(self, name: str, state: str | None) -> Any:
        """Return the message that a processor takes next: by its chain of states, or, without state, by the record."""
        if not self._recipe.parts[name].keeps:
            ends, number = self._ends[name], len(self._numbers[name])
            taken = [edge for edge, _ in self._numbers[name]]
            return (ends[number], taken.count(ends[number])) if number < len(ends) else None
        nodes = self._survived[name].values()
        after = {node.state: node for node in nodes}
        if len(after) < len(nodes):
            raise AssertionError(f"the inputs of {name} belong to no single execution: {list(nodes)}")
        return after[state].time if state in after else None

    def _swallowed(self, name: str) -> bool:
        """Return whether a processor's last steps may have no effect: some processor downstream may send nothing."""
        behind = {wire.target for wire in self._recipe.outputs(name) if not wire.back}
        return any(self._recipe.parts[p].swallows or self._swallowed(p) for p in behind)

    def _in_batches(self, name: str) -> None:
        """Execute a batch, or a merge that gathers, with its recorded ends of epochs."""
        left = sorted(
            (wire.name, self._epoch(wire, time), time, digest)
            for wire in self._recipe.inputs(name)
            for time, digest in self._sent[wire.name].items()
        )
        for number, recorded in enumerate(self._ends[name]):
            ends = (
                dict(recorded) if isinstance(recorded, tuple) else dict.fromkeys((edge for edge, *_ in left), recorded)
            )
            taken = [(edge, time, digest) for edge, epoch, time, digest in left if epoch <= ends[edge]]
            self._check_bound(name, number, [(epoch, digest) for edge, epoch, _, digest in left if epoch <= ends[edge]])
            left = [message for message in left if message[1] > ends[message[0]]]
            self._run(name, number, taken, None)
        if left:
            raise AssertionError(f"{name} never took {left}")

    def _check_bound(self, name: str, number: int, taken: list[tuple[int, str]]) -> None:
        """Check that an epoch of a batch has ended with the step that brought it to its number of rows."""
        policy = batch_of(self._recipe.parts[name].durability.policy)
        if not self._unknown.isdisjoint(digest for _, digest in taken):
            return  # nothing is known of such a message, its rows neither
        last = max((epoch for epoch, _ in taken), default=0)
        rows = sum(rows_of(digest) for epoch, digest in taken if epoch < last)
        if policy is not None and policy.rows is not None and rows >= policy.rows:
            raise AssertionError(f"epoch {number} of {name} had {rows} rows before its last step: {policy}")

    def _loop(self, head: str) -> None:
        """Execute a loop, epoch by epoch."""
        first: dict[int, list[tuple[str, Any, str]]] = defaultdict(list)
        for wire in self._recipe.inputs(head):
            for time, digest in self._sent[wire.name].items() if not wire.back else ():
                first[self._epoch(wire, time)].append((wire.name, time, digest))
        states: dict[str, str | None] = {}
        for epoch in sorted(first):
            self._iterations(head, (epoch,), sorted(first[epoch]), states)

    def _iterations(
        self, head: str, around: tuple[int, ...], effect: list[tuple[str, Any, str]], states: dict[str, str | None]
    ) -> list[tuple[str, Any, str]]:
        """Execute rounds until no message comes back, and return the messages that leave for the loop around.

        Args:
            around: The epoch, and the rounds of the loops around.
        """
        body = head.removesuffix("head") + "body"
        (back,) = (wire for wire in self._recipe.inputs(head) if wire.back)
        leaves = [w for w in self._recipe.outputs(body) if not w.back and self._recipe.parts[w.target].depth]
        left: list[tuple[str, Any, str]] = []
        iteration = 0
        while effect:
            time = (*around, iteration)
            states[head] = self._run(head, time, effect, states.get(head))
            (through,) = self._recipe.outputs(head)
            passed = [(through.name, time, self._sent[through.name][time])]
            if through.target != body:
                passed = self._iterations(through.target, time, passed, states)
            states[body] = self._run(body, time, sorted(passed), states.get(body))
            left += [(wire.name, time, self._sent[wire.name][time]) for wire in leaves]
            came = self._sent[back.name].get(time)
            effect = [] if came is None else [(back.name, time, came)]
            iteration += 1
        return left
