"""What a processor makes durable, and when, as the machine asks it (design, section 2)."""

from __future__ import annotations

from dataclasses import dataclass

from boatlift.dataflow import Batch, Eager, Ephemeral, History, Lazy, Policy
from boatlift.errors import InvalidError
from boatlift.recovery import Kind, Vertex
from boatlift.times import Sequence

__all__ = ["Durability"]


@dataclass(frozen=True, slots=True)
class Durability:
    """A policy, and whether choices are kept: the two are independent.

    Attributes:
        policy: What the processor makes durable.
        recorded: Whether its determinants are. Where a source goes on from always is; where the epochs of a batch end counts, if they are not, once what
            it sent is durable.
        messages: Whether what it sends is made durable, whatever the policy.
        with_state: Whether what it sends is made durable whenever its state is.
    """

    policy: Policy = Ephemeral()  # noqa: RUF009 - immutable
    recorded: bool = True
    messages: bool = False
    with_state: bool = False

    @property
    def state_every(self) -> int | None:
        """After how many steps its state is made durable; None: never."""
        match self.policy:
            case Lazy(every):
                return every
            case Eager():
                return 1
            case _:
                return None

    @property
    def keeps_messages(self) -> bool:
        """Whether what it sends is made durable."""
        return self.messages or isinstance(self.policy, Batch | Eager)

    @property
    def keeps_inputs(self) -> bool:
        """Whether what it takes is made durable, in place of its state."""
        return isinstance(self.policy, History)

    def check(self, vertex: Vertex, *, coarse: bool) -> None:
        """Refuses what cannot be.

        Raises:
            InvalidError: `[BAD_POLICY]`.
        """
        name, policy = vertex.name, type(self.policy).__name__
        if vertex.kind is Kind.STATEFUL and isinstance(self.policy, Ephemeral | Batch):
            raise InvalidError("BAD_POLICY", f"{name} keeps state, which {policy} cannot: use Lazy, Eager or History")
        if vertex.kind is Kind.STATELESS and isinstance(vertex.domain, Sequence) and not self.recorded:
            raise InvalidError(
                "BAD_POLICY", f"{name} keeps no state, so the order in which it takes its inputs must be recorded"
            )
        if self.keeps_inputs and vertex.chooses and not self.recorded:
            raise InvalidError(
                "BAD_POLICY",
                f"{name} makes choices that are not recorded: replaying what it took would give another state; record them, or use "
                "Lazy or Eager",
            )
        if coarse and not isinstance(self.policy, Batch):
            raise InvalidError("BAD_POLICY", f"the coarse epochs of {name} never end: use Batch(…), not {policy}")
