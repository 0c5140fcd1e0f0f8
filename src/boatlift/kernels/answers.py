"""Answers of the outside: asked for once, and given again when a step is executed again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from boatlift.errors import DivergedError, UserCodeError


class Answers:
    """The answers that a task's part of a step asks for, by key, in the order in which each key asks.

    Args:
        recorded: Of a step that is executed again: the answers that it had; None: it asks.

    Attributes:
        given: The answers of this execution as JSON texts, by the hash of their key.
        failure: The first call that raised. It fails the step, whatever the function does: a replay has no such call.
    """

    def __init__(self, processor: str, recorded: Mapping[str, Sequence[str]] | None) -> None:
        self._processor, self._recorded = processor, recorded
        self.given: dict[str, list[str]] = {}
        self.failure: Exception | None = None

    def ask(self, key: int, ask: Callable[[], Any]) -> Any:
        """Return an answer, in the form that JSON gives it.

        Args:
            key: The hash of the key that asks.

        Raises:
            UserCodeError: `[USER_CODE]` the answer is no JSON.
            DivergedError: `[DIVERGED]` the step asks for more than it did.
        """
        try:
            return self._answer(key, ask)
        except Exception as error:
            self.failure = self.failure or error
            raise

    def _answer(self, key: int, ask: Callable[[], Any]) -> Any:
        of_key = self.given.setdefault(f"{key:x}", [])
        if self._recorded is None:
            text = self._as_json(ask())
        else:
            known = self._recorded.get(f"{key:x}", ())
            if len(of_key) >= len(known):
                raise DivergedError(
                    "DIVERGED",
                    f"a key of {self._processor} asks for more than the {len(known)} answers that it had when the step "
                    "was executed first: let the number of calls depend on the key's rows, state and answers alone",
                )
            text = known[len(of_key)]
        of_key.append(text)
        return json.loads(text)

    def _as_json(self, answer: Any) -> str:
        try:
            return json.dumps(answer)
        except (TypeError, ValueError) as error:
            raise UserCodeError(
                "USER_CODE",
                f"a call of {self._processor} was answered with {type(answer).__name__}, which JSON does not have "
                f"({error}): answer with numbers, text, lists and dicts",
                lasting=True,
            ) from error
