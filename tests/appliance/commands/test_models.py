"""`hisar models`, without a network."""

import os
from pathlib import Path

import pytest

from tests.appliance.commands.conftest import Hisar
from tests.appliance.sources.gguf import tiny_gguf


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "Küçük Model.gguf"
    path.write_bytes(tiny_gguf())
    return path


def test_an_empty_library_lists_what_can_be_fetched(hisar: Hisar) -> None:
    listed = hisar.json("models", "list")
    assert listed["models"] == []
    assert [known["name"] for known in listed["known"]] == ["smollm2:135m", "echo"]
    assert [known["licence"] for known in listed["known"]] == ["Apache-2.0", ""]
    assert "not fetched" in hisar("models", "list").stdout
    assert not hisar.home.exists()


def test_a_model_is_imported_shown_verified_and_removed(hisar: Hisar, weights: Path) -> None:
    imported = hisar.json("models", "import", str(weights))
    assert imported["name"] == "Küçük-Model"
    assert imported["size_bytes"] == weights.stat().st_size
    shown = hisar.json("models", "show", "Küçük-Model")
    assert shown == imported
    assert Path(shown["path"]).read_bytes() == weights.read_bytes()
    assert hisar.json("models", "verify")["models"][0]["ok"]
    assert hisar.json("models", "rm", "Küçük-Model") == {"removed": ["Küçük-Model"]}
    assert hisar.json("models", "list")["models"] == []
    assert weights.exists()


def test_a_changed_file_does_not_verify(hisar: Hisar, weights: Path) -> None:
    path = Path(hisar.json("models", "import", str(weights), "--name", "x")["path"])
    path.unlink()
    path.write_bytes(weights.read_bytes()[:-1] + b"x")
    done = hisar("models", "verify", "x")
    assert done.returncode == 66
    assert done.stdout.startswith("BROKEN  x")


def test_a_broken_manifest_is_told_beside_the_others(hisar: Hisar) -> None:
    hisar("models", "import", "echo:")
    broken = hisar.home / "models" / "kirik"
    broken.mkdir()
    done = hisar("models", "list")
    assert done.returncode == 0
    assert "echo" in done.stdout
    assert "kirik" in done.stderr


def test_a_pull_of_a_path_is_pointed_to_import(hisar: Hisar, weights: Path) -> None:
    done = hisar("models", "pull", str(weights))
    assert done.returncode == 2
    assert f"hisar models import {weights}" in done.stderr


def test_without_a_terminal_no_control_character_is_written(hisar: Hisar) -> None:
    done = hisar("models", "pull", "pypi:", "--name", "x")
    assert done.returncode == 66
    assert "\x1b" not in done.stderr + done.stdout


def test_a_home_that_cannot_be_made_is_one_clear_line(hisar: Hisar) -> None:
    hisar.home.write_text("")
    done = hisar("models", "import", "echo:")
    assert done.returncode == 69
    assert str(hisar.home) in done.stderr
    assert "home.unwritable" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_existing_model_is_not_replaced_in_silence(hisar: Hisar, weights: Path) -> None:
    hisar("models", "import", "echo:", "--name", "mine")
    done = hisar("models", "import", str(weights), "--name", "mine")
    assert done.returncode == 66
    assert "model.exists" in done.stderr
    assert "--replace" in done.stderr
    assert hisar.json("models", "show", "mine")["runner"] == "echo"
    hisar("models", "import", str(weights), "--name", "mine", "--replace")
    assert hisar.json("models", "show", "mine")["runner"] == "llamacpp"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["import", ""], "model.source_invalid"),
        (["import", "/dev/zero"], "model.source_invalid"),
        (["import", "echo:", "--name", ""], "model.name_invalid"),
        (["import", "hf:org/name"], "usage.wrong_verb"),
        (["pull", ""], "model.unknown"),
        (["pull", "echo", "--name", ""], "model.name_invalid"),
        (["pull", "https://[::1"], "model.source_invalid"),
        (["pull", "https://host:x/a.gguf"], "model.source_invalid"),
        (["pull", "https:///a.gguf"], "model.source_invalid"),
        (["pull", "https://[::1", "--name", "x"], "model.source_invalid"),
        (["pull", "https://a\u2028b/x.gguf"], "model.source_invalid"),
        (["show", ""], "model.not_found"),
        (["rm", ""], "model.name_invalid"),
    ],
)
def test_what_names_no_model_is_refused_at_once(
    hisar: Hisar, arguments: list[str], code: str
) -> None:
    done = hisar("models", *arguments)
    assert done.returncode in {2, 66}
    assert code in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(hisar.home.glob("models/.pulls/*"))


def test_a_pipe_is_refused_and_not_waited_for(hisar: Hisar, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    done = hisar("models", "import", str(tmp_path / "pipe.gguf"))
    assert done.returncode == 66
    assert "model.source_invalid" in done.stderr


@pytest.mark.parametrize("sha256", ["", "abc", "z" * 64])
def test_what_is_no_digest_pins_nothing_and_is_refused(
    hisar: Hisar, weights: Path, sha256: str
) -> None:
    assert hisar("models", "import", str(weights), "--sha256", sha256).returncode == 2
    assert hisar("models", "pull", "smollm2:135m", "--sha256", "0" * 64).returncode == 2
    assert not hisar.home.exists()
