"""What is the same for all verbs: help, errors, exit codes, encodings."""

import subprocess
import sys

import pytest

from appliance.commands.main import VERBS, cli
from tests.appliance.commands.conftest import Hisar

ALL = [
    *([verb] for verb in VERBS),
    *(["models", verb] for verb in ("pull", "import", "list", "show", "rm", "verify")),
]


@pytest.mark.parametrize("verb", ALL, ids=" ".join)
def test_every_verb_has_help(hisar: Hisar, verb: list[str]) -> None:
    done = hisar(*verb, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: hisar {' '.join(verb)}")
    assert not hisar.home.exists()


def test_the_list_of_verbs_says_what_each_is_for(hisar: Hisar) -> None:
    done = hisar("--help")
    for verb, (_, summary) in VERBS.items():
        assert f"{verb} " in done.stdout
        assert summary in done.stdout
        assert cli.get_command(None, verb) is not None


def test_help_imports_no_verb_and_no_heavy_library() -> None:
    script = (
        "import sys; sys.argv = ['hisar', '--help']\n"
        "from appliance.commands.main import main\n"
        "try: main()\n"
        "except SystemExit: print(*sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, encoding="utf-8", check=True
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"httpx", "rich", "sqlalchemy", "psutil", "appliance.commands.up"}


def test_an_unknown_verb_is_a_usage_error(hisar: Hisar) -> None:
    done = hisar("fly")
    assert done.returncode == 2
    assert "fly" in done.stderr


def test_an_error_goes_to_stderr_with_its_hint_and_exit_code(hisar: Hisar) -> None:
    done = hisar("models", "show", "yok-ğüşİı")
    assert done.returncode == 66
    assert done.stdout == ""
    assert "error: there is no model 'yok-ğüşİı' here [model.not_found]" in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("locale", ["C", "POSIX", "tr_TR.ISO-8859-9", "xx_XX"])
def test_output_is_utf8_in_every_locale(hisar: Hisar, locale: str) -> None:
    done = hisar("models", "show", "ğüşİı", LC_ALL=locale)
    assert "ğüşİı" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_leaves_early_is_not_complained_of(hisar: Hisar) -> None:
    with hisar.start("models", "list") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1
