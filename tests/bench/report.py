"""How a benchmark tells what it found: results, goals, one table and one line of JSON.

A result is a list of figures, one a round. Where a rival was measured in the same rounds, what is
held to the goal is the ratio of ours to theirs in each round; the figure itself where not.
"""

import argparse
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Final, TypeAlias

import msgspec
import psutil
from msgspec import Struct

from tests.bench.load import spread

_CPU_INFO: Final = Path("/proc/cpuinfo")
_COLUMNS: Final = ("what", "ours", "other", "ratio", "goal", "")


NUM_ROUNDS: Final = 5


class NotMeasuredError(Exception):
    """Why a benchmark cannot be run here, and what would make it."""


class Goal(Struct, frozen=True):
    """What the median shall be."""

    bound: float
    is_ceiling: bool = False

    def is_reached(self, value: float) -> bool:
        """Whether a median is good enough."""
        return value <= self.bound if self.is_ceiling else value >= self.bound

    def __str__(self) -> str:
        return f"{'<=' if self.is_ceiling else '>='} {self.bound:g}"


class Result(Struct, frozen=True, kw_only=True):
    """Figures of one kind, a round each; `rival` names what `theirs` was measured on."""

    what: str
    unit: str
    ours: list[float]
    rival: str = ""
    theirs: list[float] = []
    goal: Goal | None = None

    @property
    def judged(self) -> list[float]:
        """What is held to the goal."""
        if not self.theirs:
            return self.ours
        return [mine / other for mine, other in zip(self.ours, self.theirs, strict=True)]


class Missing(Struct, frozen=True, kw_only=True):
    """A benchmark that was not run."""

    what: str
    reason: str


Measure: TypeAlias = Callable[[int], list[Result]]


def at_least(bound: float) -> Goal:
    """More is better."""
    return Goal(bound)


def at_most(bound: float) -> Goal:
    """Less is better."""
    return Goal(bound, is_ceiling=True)


def run_alone(measure: Measure) -> None:
    """One benchmark by itself: `[ROUNDS]` on the command line, then its table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("rounds", nargs="?", type=int, default=NUM_ROUNDS)
    show(measure(parser.parse_args().rounds))


def show(found: Sequence[Result | Missing]) -> None:
    """The table, then what was not measured, then everything as one line of JSON."""
    print(
        f"\n{time.strftime('%Y-%m-%d')}, {describe_machine()}; median (least-most) of the rounds\n"
    )
    results = [result for result in found if isinstance(result, Result)]
    _print_table([_COLUMNS, *(_cells(result) for result in results)])
    for missing in found:
        if isinstance(missing, Missing):
            print(f"{missing.what}: not measured: {missing.reason}")
    print(msgspec.json.encode(found).decode())


def describe_machine() -> str:
    """Processor, cores and memory."""
    lines = _CPU_INFO.read_text().splitlines() if _CPU_INFO.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory_gib = psutil.virtual_memory().total / 2**30
    return (
        f"{(names or [platform.processor()])[0]}, {psutil.cpu_count()} cores, {memory_gib:.0f} GiB"
    )


def _cells(result: Result) -> tuple[str, ...]:
    ratio = verdict = ""
    if result.theirs:
        ratio = spread(result.judged)
    if result.goal is not None:
        verdict = "reached" if result.goal.is_reached(median(result.judged)) else "missed"
    return (
        f"{result.what}, {result.unit}",
        spread(result.ours),
        f"{spread(result.theirs)} {result.rival}" if result.theirs else "",
        ratio,
        str(result.goal or ""),
        verdict,
    )


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
