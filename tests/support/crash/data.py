"""The input of the dataflows that crash tests kill."""

import random
from pathlib import Path

FILES = 7
QUERIES = 6
ASKED = 5  # at once


def make_files(folder: Path) -> None:
    """Writes all of it into a folder."""
    make_data(folder / "data")
    make_queries(folder / "queries")


def make_data(folder: Path) -> None:
    """Writes the rows: keys that are NULL now and then, values whose float sum depends on their order."""
    folder.mkdir(parents=True)
    draw = random.Random(11)
    for number in range(FILES):
        lines = ["k,g,v"]
        for _ in range(60):
            key = "NA" if draw.random() < 0.1 else f"key{draw.randrange(12)}"
            value = "NA" if draw.random() < 0.05 else repr(draw.uniform(-1, 1) * 10 ** draw.randrange(-8, 9))
            lines.append(f"{key},{draw.randrange(4)},{value}")
        (folder / f"part-{number:02}.csv").write_text("\n".join(lines) + "\n")


def make_queries(folder: Path) -> None:
    """Writes what is asked, some of it about keys that there are not."""
    folder.mkdir(parents=True)
    draw = random.Random(12)
    for number in range(QUERIES):
        lines = [f"{number * ASKED + i},key{draw.randrange(14)}" for i in range(ASKED)]
        (folder / f"part-{number:02}.csv").write_text("\n".join(["id,k", *lines]) + "\n")
