"""What a row says of a goal, and how it is printed."""

import pytest

from tests.gpu.rows import Row, is_wrong, not_measured, spread, table, without_gpu


@pytest.mark.parametrize(
    ("ratio", "is_most", "verdict"),
    [
        (0.9, False, "reached"),
        (0.8, False, "missed"),
        (0.8, True, "reached"),
        (0.9, True, "missed"),
    ],
)
def test_a_goal_is_reached_or_missed(ratio: float, is_most: bool, verdict: str) -> None:
    assert Row(what="x", ratio=ratio, aim=0.85, is_most=is_most).verdict == verdict


def test_without_a_goal_or_a_figure_nothing_is_claimed() -> None:
    assert Row(what="x", ratio=2.0).verdict == ""
    assert not_measured("x", "not built", "G7").verdict == "not measured"


def test_slow_is_not_wrong() -> None:
    assert not is_wrong(Row(what="x", ratio=0.1, aim=0.85))
    assert is_wrong(Row(what="x", ratio=2.0, aim=1.0, is_most=True, needs_gpu=False))


def test_a_processor_tells_no_speed() -> None:
    row = without_gpu(Row(what="x", ours=spread([1.0]), floor=1.0, ratio=1.0, aim=0.5))
    assert (row.ours, row.floor, row.ratio, row.verdict) == (None, None, None, "not measured")


def test_a_row_is_a_line() -> None:
    row = Row(goal="G1", what="x", unit="us", floor=10.0, ours=spread([12.0, 11.0, 1500.0]))
    lines = table([row]).splitlines()
    assert lines[1].split() == ["G1", "x", "10", "us", "12", "us", "(11-1,500)"]
