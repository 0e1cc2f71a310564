"""`hisar config` as a person and as a program use it."""

import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from appliance.commands.config import config
from appliance.config import Config
from appliance.config_file import InvalidConfigError, load


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HISAR_HOME", str(tmp_path))
    return tmp_path


def hisar_config(*arguments: str) -> Result:
    return CliRunner().invoke(config, arguments)


def test_a_box_without_a_file_is_fine() -> None:
    result = hisar_config("check")
    assert result.exit_code == 0
    assert "defaults" in result.stdout
    assert json.loads(hisar_config("check", "--json").stdout)["ok"] is True


def test_faults_are_told_with_an_exit_code_of_their_own(home: Path) -> None:
    (home / "config.toml").write_text("TPM = 1\n")
    assert isinstance(hisar_config("check").exception, InvalidConfigError)
    result = hisar_config("check", "--json")
    assert result.exit_code == 78
    (fault,) = json.loads(result.stdout)["faults"]
    assert (fault["code"], fault["path"], fault["line"]) == ("config.unknown_key", "TPM", 1)


def test_unknown_variables_of_the_environment_are_warned_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HISAR_HOEM", "/x")
    assert "HISAR_HOME" in hisar_config("check").stderr
    assert "HISAR_HOEM" in json.loads(hisar_config("check", "--json").stdout)["warnings"][0]


def test_another_file_can_be_checked_and_must_exist(home: Path) -> None:
    (home / "other.toml").write_text("[gateway]\nport = 1\n")
    assert hisar_config("check", "--file", str(home / "other.toml")).exit_code == 0
    assert hisar_config("check", "--file", str(home / "none.toml")).exit_code == 2


def test_what_is_shown_can_be_used_as_a_file(home: Path) -> None:
    (home / "config.toml").write_text(
        '[aliases]\n"hızlı model" = "m"\n[limits.per_key]\ntokens_per_minute = 5\n'
    )
    shown = home / "shown.toml"
    shown.write_text(hisar_config("show").stdout)
    assert load(shown) == load(home / "config.toml") != Config()
    assert json.loads(hisar_config("show", "--json").stdout)["limits"]["max_in_flight"] == 64


def test_a_password_is_masked(home: Path) -> None:
    (home / "config.toml").write_text('[store]\nurl = "postgresql://u:s3c:r@et@h/d"\n')
    result = hisar_config("show")
    assert tomllib.loads(result.stdout)["store"]["url"] == "postgresql://u:***@h/d"
    assert "s3c" not in hisar_config("show", "--json").stdout
