"""`hisar models optimise`, as far as it goes without minutes of measuring."""

import msgspec
import pytest

from appliance.catalogue import Library
from appliance.commands.optimise import show_optimisation
from appliance.optimise_records import FormatResult, LeftOut, Optimisation, Speed
from tests.appliance.commands.conftest import Hisar


def figures(name: str, *, is_original: bool = False) -> FormatResult:
    speed = Speed(median=12.3, lowest=10, highest=14)
    return FormatResult(
        format=name,
        file=f"{name}.gguf",
        size_bytes=2_000_000,
        is_original=is_original,
        decode={1: speed, 8: speed},
        prompt=speed,
        perplexity=17.5,
        equal_tokens=0.985,
    )


NOTE = Optimisation(
    format="Q8_0",
    profile="throughput",
    max_loss=0.05,
    original_file="Q4_1.gguf",
    measured_at=1_800_000_000,
    results=(figures("Q4_1", is_original=True), figures("Q8_0")),
    left_out=(LeftOut(format="BF16", reason="needs more memory"),),
    is_requantised=True,
)


def test_the_figures_are_told_with_all_that_is_needed_to_read_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_optimisation(NOTE)
    said = capsys.readouterr().out
    for words in ("Q8_0, chosen for throughput", "Q4_1 (original)", "12 (10-14)", "17.50", "98.5 %",
                  "BF16 was left out", "up to 1.4 times", "quantised itself"):  # fmt: skip
        assert words in said


def test_a_model_shows_the_format_in_use(hisar: Hisar) -> None:
    hisar("models", "import", "echo:")
    assert hisar.json("models", "show", "echo")["optimisation"] is None
    library = Library(hisar.home / "models")
    library.replace(msgspec.structs.replace(library.get("echo"), optimisation=NOTE))
    assert "Q8_0, chosen for throughput" in hisar("models", "show", "echo").stdout
    assert hisar.json("models", "show", "echo")["optimisation"]["format"] == "Q8_0"
    back = hisar("models", "optimise", "echo", "--restore")
    assert back.returncode == 0
    assert "as it came" in back.stdout
    assert "chosen for" not in hisar("models", "show", "echo").stdout


def test_what_cannot_be_optimised_is_refused(hisar: Hisar) -> None:
    hisar("models", "import", "echo:")
    done = hisar("models", "optimise", "echo")
    assert done.returncode == 66
    assert "model.not_optimisable" in done.stderr
    assert hisar("models", "optimise", "nobody").returncode == 66
    assert hisar("models", "optimise", "echo", "--restore").returncode == 2
