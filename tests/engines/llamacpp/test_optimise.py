"""Formats of a model are copied and measured by a program that prints lines of JSON."""

import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest

from appliance.errors import MachineError
from appliance.optimise_records import Line, Refusal
from engines.llamacpp.optimise_copies import Original, make_copies
from engines.llamacpp.optimise_speed import speed_of
from tests.engines.llamacpp.bert_file import tiny_bert, write_bert
from tests.engines.llamacpp.gguf_files import gguf, write


def run(path: Path, folder: Path) -> tuple[int, Line]:
    """Exit code and last line."""
    command = [sys.executable, "-m", "engines.llamacpp.optimise", str(path), "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, check=False)
    return done.returncode, msgspec.json.decode(done.stdout.splitlines()[-1], type=Line)


def test_a_broken_file_is_refused_on_the_last_line(tmp_path: Path) -> None:
    code, line = run(write(tmp_path / "cut.gguf", gguf()[:-2048]), tmp_path)
    assert (code, isinstance(line, Refusal) and line.code) == (66, "model.file_broken")


def test_a_model_that_writes_no_text_has_nothing_to_choose(tmp_path: Path) -> None:
    path = tmp_path / "encoder.gguf"
    write_bert(path, tiny_bert())
    code, line = run(path, tmp_path)
    assert (code, isinstance(line, Refusal) and line.code) == (66, "model.not_optimisable")
    assert list(tmp_path.iterdir()) == [path]


def test_no_copy_is_begun_where_the_disk_is_too_small(tmp_path: Path) -> None:
    original = Original(path=tmp_path / "x.gguf", format="F16", num_weights=1000)
    with pytest.raises(MachineError) as refused:
        make_copies(
            original,
            tmp_path,
            wanted=["Q4_0", "BF16"],
            num_threads=1,
            tell=pytest.fail,
            free_space=lambda _: 1000,
        )
    assert refused.value.code == "machine.disk_full"
    assert list(tmp_path.iterdir()) == []


def test_a_format_that_memory_cannot_hold_is_left_out(tmp_path: Path) -> None:
    original = Original(path=tmp_path / "x.gguf", format="F16", num_weights=10**15)
    copies, left_out = make_copies(
        original, tmp_path, wanted=["F16", "BF16"], num_threads=1, tell=pytest.fail
    )
    assert copies == {}
    assert [one.format for one in left_out] == ["BF16"]
    assert "memory" in left_out[0].reason


def test_the_median_has_its_range() -> None:
    speed = speed_of([3.0, 1.0, 2.0])
    assert (speed.median, speed.lowest, speed.highest) == (2.0, 1.0, 3.0)


def test_there_are_twenty_prompts_and_texts_in_two_languages() -> None:
    folder = files("engines.llamacpp") / "optimise_texts"
    assert len((folder / "prompts.txt").read_text(encoding="utf-8").splitlines()) == 20
    for name in ("english.txt", "turkish.txt"):
        assert len((folder / name).read_text(encoding="utf-8").split()) > 150
