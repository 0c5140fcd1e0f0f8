"""What a notebook offers behind a dot: the public names, and nothing else."""

from __future__ import annotations

import boatlift as bl


def test_the_package_lists_its_lazy_names_and_no_internals() -> None:
    assert set(dir(bl)) == {*bl.__all__, "__version__"}
    assert all(hasattr(bl, name) for name in dir(bl))


def test_kafka_lists_its_source_and_its_sink() -> None:
    assert dir(bl.kafka) == ["sink", "source"]
