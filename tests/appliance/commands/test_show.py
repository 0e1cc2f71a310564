"""How progress and text are shown."""

import pytest

from appliance.commands.show import Lines, print_table, printable, progress
from appliance.progress import Silent


def test_progress_without_a_terminal_is_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """ollama/ollama#14571: escapes in the output of a program without a terminal."""
    with progress() as shown:
        shown.start("model.gguf", 2_000_000, 500_000)
        shown.advance(1_500_000)
        shown.finish()
    assert isinstance(shown, Lines)
    assert capsys.readouterr().err.splitlines() == [
        "model.gguf: 0.5 MB of 2.0 MB",
        "model.gguf: 2.0 MB of 2.0 MB",
    ]


def test_progress_can_be_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(quiet=True) as shown:
        shown.start("model.gguf", 0, 0)
        shown.advance(5)
        shown.finish()
    assert isinstance(shown, Silent)
    assert capsys.readouterr().err == ""


def test_a_size_that_is_not_known_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    lines.start("model.gguf", 0, 0)
    assert capsys.readouterr().err == "model.gguf: 0.0 MB\n"


def test_an_answer_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2Jb\x07\tc\nğ\x9b") == "a[2Jb\tc\nğ"


def test_columns_are_as_wide_as_their_widest_cell(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "SIZE"), [("ğüşİı:long", "1"), ("b", "22")])
    assert capsys.readouterr().out.splitlines() == [
        "NAME        SIZE",
        "ğüşİı:long  1",
        "b           22",
    ]
