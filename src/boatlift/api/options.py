"""Checks of the arguments of streams' methods: names, columns, policies."""

from __future__ import annotations

import re
from collections.abc import Mapping

from boatlift.dataflow.policies import CHECKPOINTED, Batch, Eager, Ephemeral, History, Lazy, Policy, lateness_in
from boatlift.errors import InvalidError
from boatlift.operators.view.operator import LoopRows

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def checked_name(name: str) -> str:
    """Return the name of a dataflow or a processor.

    Raises:
        InvalidError: `[BAD_NAME]`.
    """
    if not _NAME.fullmatch(name):
        raise InvalidError("BAD_NAME", f"{name!r} is no name: use up to 64 letters, digits, - and _, a letter first")
    return name


def policy_without_state(name: str, policy: object, default: Policy) -> Policy:
    """Return the policy of a processor without state.

    Raises:
        InvalidError: `[BAD_POLICY]`.
    """
    if policy is None:
        return default
    if not isinstance(policy, Ephemeral | Eager | History):
        raise InvalidError(
            "BAD_POLICY",
            f"{name} keeps no state that {type(policy).__name__} could save: use Ephemeral(), Eager() or History()",
        )
    return _without_epochs(name, policy)


def policy_of_batch(name: str, policy: object, default: Batch) -> Batch | History:
    """Return the policy of a processor with epochs of its own.

    Raises:
        InvalidError: `[BAD_POLICY]`.
    """
    if policy is None:
        return default
    if isinstance(policy, History):
        return History(policy.batch or default)
    if not isinstance(policy, Batch):
        raise InvalidError(
            "BAD_POLICY",
            f"{name} computes by epochs, which {type(policy).__name__} has not: use Batch(…), or History(Batch(…))",
        )
    return policy


def policy_of_state(name: str, policy: object, kept: str) -> Policy:
    """Return the policy of a processor with state; `CHECKPOINTED` if none is given.

    Raises:
        InvalidError: `[BAD_POLICY]`.
    """
    if policy is None:
        return CHECKPOINTED
    if not isinstance(policy, Lazy | Eager | History):
        raise InvalidError(
            "BAD_POLICY",
            f"{name} keeps {kept}, which {type(policy).__name__} cannot: use Lazy(…), Eager() or History()",
        )
    return _without_epochs(name, policy)


def _without_epochs(name: str, policy: Policy) -> Policy:
    if isinstance(policy, History) and policy.batch is not None:
        raise InvalidError("BAD_POLICY", f"{name} has no epochs that could end: use History()")
    return policy


def loop_of(name: str, output: str | Mapping[str, str], max_iterations: object, keep_every: str) -> LoopRows:
    """Return a loop.

    Raises:
        InvalidError: `[BAD_OPTION]` the number is less than 1, or the period is no period.
    """
    if not isinstance(max_iterations, int) or max_iterations < 1:
        raise InvalidError(
            "BAD_OPTION", f"{name} has max_iterations={max_iterations!r}: write a whole number from 1 on"
        )
    outputs = {"": output} if isinstance(output, str) else output
    return LoopRows(tuple(outputs.items()), max_iterations, lateness_in(keep_every, "keep_every") / 1000)


def lateness_of(name: str, given: object) -> tuple[str, str]:
    """Return the column and the period of the `lateness` of `Dataflow.source`.

    Raises:
        InvalidError: `[BAD_OPTION]`.
    """
    if not isinstance(given, Mapping) or len(given) != 1:
        raise InvalidError(
            "BAD_OPTION", f"{name}: lateness is {given!r}: write one column and a period, as in {{'at': '10 minutes'}}"
        )
    ((column, late_by),) = given.items()
    return column, late_by
