"""An attack on every object of a store with several owners and pushed rows: `verify` names each damaged object."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from boatlift.errors import Finding
from boatlift.storage.identities import IDENTITIES
from boatlift.storage.input_log import KEY_CHECKPOINT_AFTER, InputLog
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.codec import Push
from boatlift.storage.records.facts import Determinant, GarbageCollection
from boatlift.storage.records.records import Cursor, Stopped
from boatlift.storage.verify import verify
from support.worlds.facts import CLAIM, Unsynced, gave, run_of, saved

OWNERS = 3
FLIPS = 4


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of three owners, of which the last stopped cleanly.

    Each took pushed rows, freed those before, wrote a manifest, and kept a run.
    """
    root = tmp_path_factory.mktemp("attacked")
    store = LocalStore.open(root, create=True, filesystem=Unsynced())
    freed = 0
    for owner in range(OWNERS):
        log = Log.open(store, "flow", facts_an_object=1)
        token = log.claim(CLAIM)
        inputs = InputLog(store, log.store_id, "orders")
        inputs.claim(token, freed)
        numbers = [inputs.append([Push(f"{owner} {n}", 1, b"", 0)], b"rows") for n in range(KEY_CHECKPOINT_AFTER + 1)]
        inputs.free(numbers[-2], 0)
        freed = numbers[-2]
        content = f"state {owner}".encode() * 9
        store.create(f"runs/{owner}", content)
        position = {"rows": 1, "input_log": numbers[-1]}
        log.append([Determinant("orders", owner, None, {"position": position, "clock": 1, "seed": 2}), gave(owner)])
        log.append([saved(owner, run_of(content, f"runs/{owner}")), Cursor("orders", owner, {"last": freed})])
        stable = {"orders": (owner,), "sums": (owner,)}
        log.append([GarbageCollection(stable, stable, {})])
        log.move_out()
        log.checkpoint()
        log.truncate()
        if owner:
            store.delete(f"runs/{owner - 1}")
    last = inputs.append([Push("last", 1, b"", 0)], b"rows")
    position = {"rows": 1, "input_log": last}
    log.append([Determinant("orders", OWNERS, None, {"position": position, "clock": 1, "seed": 2})])
    log.append([Stopped()])
    assert list(verify(store)) == []
    assert {name.partition("/")[0] for name in store.list("")} == {
        *IDENTITIES,
        "facts",
        "input",
        "log",
        "runs",
        "stopped",
    }
    return root


def attacked(root: Path, damage: Callable[[Path], None]) -> dict[str, list[Finding]]:
    """Do some damage to each object in turn, and return what `verify` tells of each."""
    store = LocalStore.open(root, create=False)
    told = {}
    for name in list(store.list("")):
        path = root / name
        content = path.read_bytes()
        damage(path)
        told[name] = [finding for finding in verify(store) if finding.is_error]
        path.write_bytes(content)
    assert list(verify(store)) == []
    return told


def flip(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


@pytest.mark.parametrize("seed", range(FLIPS))
def test_a_flipped_bit_in_any_object_is_reported(root: Path, seed: int) -> None:
    draw = random.Random(seed)
    told = attacked(root, lambda path: flip(path, draw))
    assert {name: [(f.name, f.condition) for f in found] for name, found in told.items()} == {
        name: [(name, "CORRUPT")] for name in told
    }


@pytest.mark.parametrize("left", [0.0, 0.5, -1])
def test_any_object_that_is_cut_is_reported(root: Path, left: float) -> None:
    def cut(path: Path) -> None:
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * left) if left >= 0 else -1])

    told = attacked(root, cut)
    assert all([(f.name, f.condition) for f in found] == [(name, "CORRUPT")] for name, found in told.items())


def test_any_object_that_is_gone_is_reported(root: Path) -> None:
    told = attacked(root, Path.unlink)
    (mark,) = [name for name in told if name.startswith("stopped/")]
    assert told.pop(mark) == [], (
        "without the mark the store is as after a death right behind the stop: a note, no error"
    )
    assert all(found for found in told.values()), [name for name, found in told.items() if not found]
    for name, found in told.items():
        assert [f.condition for f in found] == ["MISSING_OBJECT"], name
        assert name in found[0].message


def test_any_object_under_the_name_of_another_is_reported(root: Path) -> None:
    """As a careless copy leaves it, with a checksum that holds."""
    names = list(LocalStore.open(root, create=False).list(""))
    draw = random.Random(7)

    def replace(path: Path) -> None:
        folder = path.parent
        others = [root / name for name in names if (root / name).parent == folder and root / name != path]
        path.write_bytes((draw.choice(others) if others else root / IDENTITIES[0]).read_bytes())

    told = attacked(root, replace)
    assert all(found for found in told.values()), [name for name, found in told.items() if not found]
