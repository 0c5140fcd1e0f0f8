"""The input of the dataflow that crash tests kill."""

import random
from pathlib import Path

FILES = 7


def make_data(folder: Path) -> None:
    """Writes the input: keys that are NULL now and then, values whose float sum depends on their order."""
    folder.mkdir(parents=True)
    draw = random.Random(11)
    for number in range(FILES):
        lines = ["k,g,v"]
        for _ in range(60):
            key = "NA" if draw.random() < 0.1 else f"key{draw.randrange(12)}"
            value = "NA" if draw.random() < 0.05 else repr(draw.uniform(-1, 1) * 10 ** draw.randrange(-8, 9))
            lines.append(f"{key},{draw.randrange(4)},{value}")
        (folder / f"part-{number:02}.csv").write_text("\n".join(lines) + "\n")
