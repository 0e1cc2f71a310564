"""A part that fails, ends its process or takes too long is a row; what it had found stays."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from tests.gpu.machine import Machine
from tests.gpu.part_process import Part, run_part
from tests.gpu.rows import Row, is_wrong

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
FOUND = Row(what="found", ratio=1.0)


def _fails(_: Machine) -> Iterator[Row]:
    yield FOUND
    raise ValueError("all wrong\nin many lines")


def _ends(_: Machine) -> Iterator[Row]:
    yield FOUND
    os._exit(3)


def _waits(_: Machine) -> Iterator[Row]:
    yield FOUND
    Event().wait()


def _run(measure: Callable[[Machine], Iterator[Row]], folder: Path, most_s: float) -> list[Row]:
    part = Part(name="part", measure=measure, budget_s=most_s)
    return list(run_part(part, folder, is_small=True, most_s=most_s))


@pytest.mark.parametrize(
    ("measure", "why"), [(_fails, "ValueError: all wrong"), (_ends, "its process ended with 3")]
)
def test_what_goes_wrong_is_told(
    measure: Callable[[Machine], Iterator[Row]], why: str, tmp_path: Path
) -> None:
    found, last = _run(measure, tmp_path, 60.0)
    assert found == FOUND
    assert last.why_not == why
    assert is_wrong(last)


def test_what_takes_too_long_is_ended(tmp_path: Path) -> None:
    found, last = _run(_waits, tmp_path, 1.0)
    assert found == FOUND
    assert last.why_not == "not done after 1 s"
