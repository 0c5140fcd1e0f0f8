"""What a processor makes durable, and when (design, section 2)."""

from __future__ import annotations

from dataclasses import dataclass

from boatlift.dataflow import Batch, Eager, Ephemeral, History, Lazy, Policy, batch_of
from boatlift.dataflow.policies import InFlight
from boatlift.errors import InvalidError
from boatlift.recovery import Kind, Vertex
from boatlift.times import Sequence

__all__ = ["Durability"]


@dataclass(frozen=True, slots=True)
class Durability:
    """A policy, and whether determinants are recorded: the two are independent.

    Attributes:
        policy: The processor's policy.
        recorded: The processor's determinants become durable. Those of a source always do. The end of a batch's epoch
            that is not recorded ahead counts once the messages of the epoch are durable.
        messages: The processor's messages become durable, whatever the policy.
        with_state: The processor's messages become durable together with each checkpoint, whatever the policy: without
            them a sink could not be handed one step after the other.
    """

    policy: Policy = Ephemeral()  # noqa: RUF009 - immutable
    recorded: bool = True
    messages: bool = False
    with_state: bool = False

    @property
    def state_every(self) -> int | None:
        """The number of steps from one checkpoint to the next; None: there are none by the number of steps."""
        match self.policy:
            case Lazy(every):
                return every
            case Eager():
                return 1
            case _:
                return None

    @property
    def state_after(self) -> int | None:
        """The milliseconds from a step to the checkpoint that has it; None: there are none by the clock."""
        seconds = self.policy.seconds if isinstance(self.policy, Lazy) else None
        return None if seconds is None else round(1000 * seconds)

    @property
    def has_checkpoints(self) -> bool:
        """Return whether the state becomes durable at intervals."""
        return self.state_every is not None or self.state_after is not None

    @property
    def in_flight(self) -> InFlight:
        """The messages that become durable with a checkpoint, as `Lazy` has them."""
        return self.policy.in_flight if isinstance(self.policy, Lazy) else False

    @property
    def keeps_messages(self) -> bool:
        """Return whether messages become durable."""
        return self.messages or isinstance(self.policy, Batch | Eager)

    @property
    def keeps_inputs(self) -> bool:
        """Return whether inputs become durable: in place of the state, or of the messages that a batch sends."""
        return isinstance(self.policy, History)

    @property
    def batch(self) -> Batch | None:
        """What ends the epochs of a batch; None if the policy is none of a batch."""
        return batch_of(self.policy)

    def check(self, vertex: Vertex, *, coarse: bool) -> None:
        """Refuse a durability that a processor cannot have.

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
                f"{name} makes choices that are not recorded: replaying its inputs would give something else; record "
                "them, or use a policy that keeps what it makes",
            )
        if coarse and self.batch is None:
            raise InvalidError(
                "BAD_POLICY",
                f"the coarse epochs of {name} never end: use Batch(…) or History(Batch(…)), not {policy}",
            )
        if self.keeps_inputs and self.batch is not None and not coarse:
            raise InvalidError("BAD_POLICY", f"{name} has no epochs of its own that could end: use History()")
