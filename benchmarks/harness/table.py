"""Results as Markdown, for people."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.harness.measuring import Result

__all__ = ["markdown"]


def markdown(results: Sequence[Result]) -> str:
    """Return a table of ratios, one of figures, and the machines: the first one is that of all others not named."""
    lines = ["| benchmark | target | ratio | |", "|---|---|---|---|"]
    for result in results:
        ratios = "; ".join(f"**{value:g}** ({name})" for name, value in result.ratios.items())
        lines.append(f"| {result.name} | {result.target} | {ratios} | {'reached' if result.met else 'not reached'} |")
    lines += ["", "| benchmark | figure | min | median | max | |", "|---|---|---|---|---|---|"]
    for result in results:
        lines += [
            f"| {result.name} | {name} | {_show(figure.min)} | {_show(figure.median)} | {_show(figure.max)} "
            f"| {figure.unit} |"
            for name, figure in result.figures.items()
        ]
    machines: dict[str, list[str]] = {}
    for result in results:
        common = {name: value for name, value in result.machine.items() if name not in ("commit", "load_at_start")}
        machines.setdefault(", ".join(f"{name} {value}" for name, value in common.items()), []).append(result.name)
    for number, (machine, names) in enumerate(machines.items()):
        what = f"{', '.join(names)} measured" if number else "Measured"
        lines += ["", f"{what} on: {machine}."]
    own = (f"{r.name} commit {r.machine.get('commit')}, load {r.machine.get('load_at_start')}" for r in results)
    lines += ["", "At the start of each: " + "; ".join(own) + "."]
    return "\n".join(lines)


def _show(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
