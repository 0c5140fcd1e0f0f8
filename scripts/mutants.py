"""Finds for each deliberate fault of the core the first seed that catches it (`make mutants`)."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.worlds.mutant import SEEDS, Mutant, caught  # noqa: E402 - found by the path above
from support.worlds.mutants import EXACT, MUTANTS  # noqa: E402

MOST_SEEDS = 12_000


def main() -> None:
    """Search, write down the seeds that were found, and fail if a fault is not found."""
    parser = argparse.ArgumentParser(prog="scripts/mutants.py", description=__doc__)
    parser.add_argument("name", nargs="*", help="only these; without a name all, and what is found is written down")
    names = parser.parse_args().name or list(MUTANTS)
    found: dict[str, int] = {}
    for name in names:
        seed = first_seed(EXACT if name == "exact" else MUTANTS[name])
        print(f"{name:20} {'not found' if seed is None else f'seed {seed}'}", flush=True)
        if seed is not None:
            found[name] = seed
    if names == list(MUTANTS):
        SEEDS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        print(f"{len(names)} mutants, {len(names) - len(found)} not caught")
        sys.exit(1 if len(found) < len(names) else 0)


def first_seed(mutant: Mutant) -> int | None:
    """Return the first seed that catches a mutant; a seed that fails without the mutant catches nothing."""
    for seed in range(MOST_SEEDS):
        with mutant.at_work():
            fails = caught(seed, mutant)
        if fails and not caught(seed, mutant):
            return seed
    return None


if __name__ == "__main__":
    main()
