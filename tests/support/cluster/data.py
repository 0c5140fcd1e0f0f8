"""The input of the cluster test."""

import random
from pathlib import Path

FILES = 7
ROWS = 4000


def make_data(folder: Path) -> None:
    """Writes the input, of many magnitudes and both signs."""
    folder.mkdir(parents=True)
    draw = random.Random(5)
    for number in range(FILES):
        rows = (
            f"{draw.randrange(8)},{number},{draw.uniform(-1, 1) * 10.0 ** draw.randrange(-6, 7)!r}" for _ in range(ROWS)
        )
        (folder / f"part-{number}.csv").write_text("k,step,v\n" + "\n".join(rows) + "\n")
