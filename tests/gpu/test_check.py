"""The check on a GPU runs: here with tiny shapes, where all of it is computed and not timed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

GOALS = {"G1", "G2", "G3", "G4", "G5", "G6", "G7", "G9", "G12", "G14", "G15", "G16", "G17", "G19"}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What it says on a processor."""
    path = tmp_path_factory.mktemp("check") / "rows.json"
    command = [sys.executable, "-m", "tests.gpu.check", "--small", "--json", str(path)]
    subprocess.run(command, check=True)
    found: list[dict[str, Any]] = json.loads(path.read_bytes())["rows"]
    return found


def test_every_part_runs_and_what_is_computed_is_right(rows: list[dict[str, Any]]) -> None:
    assert not [row for row in rows if row["is_broken"]]
    assert {row["verdict"] for row in rows if not row["needs_gpu"]} == {"reached"}


def test_every_goal_has_a_row_and_no_speed_is_told_of_a_processor(
    rows: list[dict[str, Any]],
) -> None:
    assert {row["goal"] for row in rows} - {""} == GOALS
    speeds = [row for row in rows if row["needs_gpu"]]
    assert {row["verdict"] for row in speeds} == {"not measured"}
    assert all(row["ours"] is None and row["ratio"] is None for row in speeds)


def test_parts_can_be_chosen_and_without_a_gpu_nothing_full_sized_is_tried(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    command = [sys.executable, "-m", "tests.gpu.check", "--only", "drafts", "--json", str(path)]
    subprocess.run(command, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, check=True)
    (row,) = json.loads(path.read_bytes())["rows"]
    assert (row["what"], row["verdict"], row["why_not"]) == ("drafts", "not measured", "no GPU")
