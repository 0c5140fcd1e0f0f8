"""The fixture of a victim's tests: one undisturbed run."""

from __future__ import annotations

import pytest

from boatlift.processes.warm_jvm import WarmJvm
from support.crash.tests import Undisturbed, run_undisturbed


@pytest.fixture(scope="module")
def undisturbed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, warm_jvm: WarmJvm
) -> Undisturbed:
    """Of the `VICTIM` of the test's file."""
    return run_undisturbed(request.module.VICTIM, tmp_path_factory.mktemp("undisturbed"), warm_jvm)
