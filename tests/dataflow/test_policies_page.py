"""The code of docs/guide/policies.md."""

from __future__ import annotations

import boatlift as bl
from boatlift.dataflow.processors import describe_policy
from support.pages import blocks, built


def test_a_rule_for_checkpoints_is_a_function_as_is_said() -> None:
    (block,) = blocks("Checkpoints where you want them", "python")
    policy = built("import boatlift as bl\n" + block.text)["policy"]
    assert describe_policy(policy) == "Lazy(every=None, when=large)"
    few = bl.SinceCheckpoint(steps=100, rows=999_999, bytes=1 << 20, seconds=3600.0)
    assert not policy.when(100, few)
    for many in (bl.SinceCheckpoint(1, 1_000_000, 0, 0.0), bl.SinceCheckpoint(1, 0, 1 << 28, 0.0)):
        assert policy.when(1, many)
