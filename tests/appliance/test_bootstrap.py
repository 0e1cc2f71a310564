"""The way from a clone to an environment: what is missing is said in one line, before anything."""

import subprocess
import sys
import venv
from pathlib import Path
from typing import NamedTuple

import pytest

from appliance import bootstrap

ROOT = Path(__file__).resolve().parents[2]


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout and a cache of its own, with nothing built."""
    clone, cache = tmp_path / "klon ğüşİı", tmp_path / "cache"
    clone.mkdir()
    for name in ("requirements.txt", "requirements-dev.txt", "requirements-llamacpp.txt",
                 "pyproject.toml"):  # fmt: skip
        (clone / name).write_bytes((ROOT / name).read_bytes())
    monkeypatch.setattr(bootstrap, "ROOT", clone)
    monkeypatch.setattr(bootstrap, "VENV", clone / ".venv")
    monkeypatch.setattr(bootstrap, "STAMP", clone / ".venv" / "hisar.stamp")
    for name in ("RUNTIME", "DEVELOPMENT", "ENGINE"):
        monkeypatch.setattr(bootstrap, name, clone / getattr(bootstrap, name).name)
    monkeypatch.setattr(bootstrap, "cache", lambda: cache)
    return clone


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = capsys.readouterr().err.splitlines()
    assert isinstance(line, str)
    return line


def test_an_old_python_without_a_newer_one_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bootstrap, "OLDEST_PYTHON", (99, 0))
    monkeypatch.setattr(bootstrap, "NEWER_PYTHONS", ())
    assert bootstrap.main([]) == 10
    assert sys.executable in complaint(capsys)


def test_a_missing_module_venv_is_said_with_its_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert bootstrap.main([]) == 11
    assert "apt-get install python3-venv" in complaint(capsys)


@pytest.mark.usefixtures("clone")
def test_a_missing_compiler_is_said_with_its_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bootstrap.main([]) == 12
    assert "apt-get install g++" in complaint(capsys)


def test_a_built_engine_needs_no_compiler(
    clone: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    folder = bootstrap.wheel_folder()
    folder.mkdir(parents=True)
    (folder / "llama_cpp_python-0.3.36-py3-none-linux_x86_64.whl").write_bytes(b"")
    bootstrap.check_compiler()
    assert not (clone / ".venv").exists()


def test_too_small_a_disk_is_said_with_what_is_needed(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(10, 10, 500_000_000))
    assert bootstrap.main([]) == 13
    line = complaint(capsys)
    assert str(clone) in line
    assert "0.5 GB free" in line


def test_a_cache_that_cannot_be_written_is_said_with_its_path(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = clone / "file"
    blocked.write_text("")
    monkeypatch.setattr(bootstrap, "cache", lambda: blocked / "cache")
    assert bootstrap.main([]) == 14
    assert str(blocked / "cache") in complaint(capsys)


def test_an_environment_that_is_up_to_date_is_left_alone(clone: Path) -> None:
    (clone / ".venv").mkdir()
    for_tests = bootstrap.fingerprint(True)
    bootstrap.STAMP.write_text(for_tests, encoding="utf-8")
    assert bootstrap.is_up_to_date(True)
    assert bootstrap.is_up_to_date(False)
    bootstrap.STAMP.write_text(bootstrap.fingerprint(False), encoding="utf-8")
    assert not bootstrap.is_up_to_date(True)
    (clone / "requirements.txt").write_text("click==1\n")
    assert not bootstrap.is_up_to_date(False)


def test_another_processor_gets_an_engine_of_its_own(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = bootstrap.wheel_folder()
    assert mine == bootstrap.wheel_folder()
    monkeypatch.setattr(bootstrap, "processor_flags", lambda: "sse2")
    assert bootstrap.wheel_folder() != mine
    assert clone.name not in str(mine)


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8", "tr_TR.ISO-8859-9"])
def test_a_clone_of_any_name_is_found_in_every_locale(clone: Path, locale: str) -> None:
    """python/cpython#121219: what pip writes into the environment is read as the locale has it."""
    venv.create(bootstrap.VENV, with_pip=False, symlinks=True)
    (packages,) = bootstrap.VENV.glob("lib/python*/site-packages")
    (packages / "_hisar.pth").write_text(str(clone), encoding="utf-8")
    (clone / "appliance").mkdir()
    (clone / "appliance" / "__init__.py").write_text("")
    bootstrap.name_clone_in_ascii()
    script = "import appliance; print(ascii(appliance.__file__))"
    command = [str(bootstrap.python()), "-P", "-c", script]
    done = subprocess.run(
        command, env={"LC_ALL": locale}, capture_output=True, encoding="ascii", check=True
    )
    assert done.stdout.strip() == ascii(str(clone / "appliance" / "__init__.py"))


def test_it_runs_by_path_beside_modules_named_like_the_library_s() -> None:
    """`appliance/secrets.py` must not stand in for the standard library's."""
    command = [sys.executable, "-I", str(ROOT / "appliance" / "bootstrap.py"), "--help"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    assert "--tests" in done.stdout


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_requirements_are_pinned_with_hashes_and_name_no_host(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "://" not in text
    pins = [line for line in text.splitlines() if line[:1].isalnum()]
    assert len(pins) > 40
    assert all("==" in pin and pin.endswith("\\") for pin in pins)
