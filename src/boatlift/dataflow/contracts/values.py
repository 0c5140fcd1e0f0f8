"""Values that both contracts speak of."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

__all__ = ["Delivery", "Json"]

Json = Mapping[str, Any]
"""A JSON object: strings, numbers, booleans, None, lists and objects of them."""


class Delivery(Enum):
    """The promise of a connector.

    A sink that is `AT_LEAST_ONCE` keeps no account of steps: it holds the steps that the log has recorded as committed.
    """

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"
