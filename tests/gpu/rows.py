"""One measured thing a row: against which floor, and against which goal."""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final, Literal, TypeAlias

from msgspec import Struct, structs

Verdict: TypeAlias = Literal["reached", "missed", "not measured", ""]

NO_GPU: Final = "no GPU"
_HEADS: Final = ("goal", "what", "floor or other", "ours", "ratio", "aim", "")


class Spread(Struct, frozen=True):
    """The median of several measurements, and the smallest and largest."""

    middle: float
    low: float
    high: float

    def times(self, factor: float) -> "Spread":
        """In another unit."""
        return Spread(self.middle * factor, self.low * factor, self.high * factor)


class Row(Struct, frozen=True, kw_only=True):
    """What was found out about one thing.

    - `goal`: its number among the goals of BENCHMARKS.md; "" for what is told beside them
    - `floor`: what it is held against, in `unit`: the time that bytes over bandwidth or operations
      over rate allow, a tolerance, or the other side of a comparison (`note` says which)
    - `ratio`: what `aim` speaks of, which is a least value unless `is_most`
    - `why_not`: why there is no figure
    - `needs_gpu`: it is a speed, which says nothing on a processor
    - `is_broken`: there is no figure since measuring failed
    """

    what: str
    goal: str = ""
    unit: str = ""
    floor: float | None = None
    ours: Spread | None = None
    ratio: float | None = None
    aim: float | None = None
    is_most: bool = False
    note: str = ""
    why_not: str = ""
    needs_gpu: bool = True
    is_broken: bool = False

    @property
    def verdict(self) -> Verdict:
        """Whether the aim is reached; "" where there is none."""
        if self.why_not:
            return "not measured"
        if self.aim is None or self.ratio is None:
            return ""
        is_reached = self.ratio <= self.aim if self.is_most else self.ratio >= self.aim
        return "reached" if is_reached else "missed"


def spread(numbers: Sequence[float]) -> Spread:
    """Of at least one number."""
    return Spread(median(numbers), min(numbers), max(numbers))


def not_measured(what: str, why: str, goal: str = "") -> Row:
    """A row without a figure."""
    return Row(goal=goal, what=what, why_not=why)


def broken(what: str, why: str) -> Row:
    """A row for something that failed."""
    return Row(what=what, why_not=why, is_broken=True)


def is_wrong(row: Row) -> bool:
    """Whether something failed, or is not right: being slow is neither."""
    return row.is_broken or (not row.needs_gpu and row.verdict == "missed")


def without_gpu(row: Row) -> Row:
    """The row as it may be told of a processor: what is right, and no speed."""
    if not row.needs_gpu or row.why_not:
        return row
    return structs.replace(row, floor=None, ours=None, ratio=None, note="", why_not=NO_GPU)


def table(rows: Iterable[Row]) -> str:
    """The rows in columns, a line each."""
    lines = [_HEADS, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADS))]
    padded = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )
    return "\n".join(line.rstrip() for line in padded) + "\n"


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.goal,
        row.what,
        _with_unit(row.floor, row.unit),
        _with_unit(row.ours.middle, row.unit) + _range(row.ours) if row.ours else "",
        _figure(row.ratio),
        "" if row.aim is None else f"{'<=' if row.is_most else '>='} {_figure(row.aim)}",
        ": ".join(filter(None, (row.verdict, row.why_not or row.note))),
    )


def _range(ours: Spread) -> str:
    return f" ({_figure(ours.low)}-{_figure(ours.high)})" if ours.low < ours.high else ""


def _with_unit(number: float | None, unit: str) -> str:
    return "" if number is None else f"{_figure(number)} {unit}".rstrip()


def _figure(number: float | None) -> str:
    if number is None:
        return ""
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"
