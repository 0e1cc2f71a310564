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


def test_output_that_cannot_be_written_is_one_clear_line(hisar: Hisar) -> None:
    command = [sys.executable, "-m", "appliance", "models", "list"]
    with open("/dev/full", "wb") as full:  # noqa: PTH123 a device
        done = subprocess.run(
            command, env=hisar.environment, stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 69
    (line,) = done.stderr.decode().splitlines()
    assert line == (
        "error: the output cannot be written: No space left on device [machine.output_failed]"
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_accident(hisar: Hisar, closed: str) -> None:
    line = f'"$0" -m appliance models list {closed}; "$0" -m appliance run echo selam {closed}'
    done = subprocess.run(
        ["/bin/sh", "-c", line, sys.executable],
        env=hisar.environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "usage.no_key" in done.stderr or "2>&-" in closed


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "echo", "selam", "--temperature", "nan"],
        ["run", "echo", "selam", "--temperature", "inf"],
        ["models", "optimise", "echo", "--max-loss", "nan"],
        ["fit", "echo", "--ctx", "9" * 30],
        ["fit", "echo", "--parallel", "0"],
        ["up", "--port", "0"],
    ],
    ids=" ".join,
)
def test_numbers_that_make_no_sense_are_usage_errors(hisar: Hisar, arguments: list[str]) -> None:
    done = hisar(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("key", ["ğ", "two\nlines", " ", "\udcff"])
def test_what_is_no_key_is_said_before_anybody_is_asked(hisar: Hisar, key: str) -> None:
    done = hisar("run", "echo", "selam", HISAR_API_KEY=key)
    assert done.returncode == 2
    assert "usage.bad_key" in done.stderr
    assert key.strip() not in done.stderr.split("[")[0] or not key.strip()


def test_a_reader_that_leaves_early_is_not_complained_of(hisar: Hisar) -> None:
    with hisar.start("models", "list") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1
