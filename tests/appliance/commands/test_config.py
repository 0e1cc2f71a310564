"""`hisar config` as a person and as a program use it."""

import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from appliance.catalogue import Library, ModelSpec
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


def test_a_model_to_preload_that_nobody_knows_is_a_fault(home: Path) -> None:
    (home / "config.toml").write_text('[engine]\n\npreload = ["echo", "smollm2:135"]\n')
    result = hisar_config("check")
    assert isinstance(result.exception, InvalidConfigError)
    assert "config.toml:3: engine.preload: there is no model 'smollm2:135' here (item 1)" in str(
        result.exception
    )
    told = json.loads(hisar_config("check", "--json").stdout)
    assert [fault["code"] for fault in told["faults"]] == ["config.unknown_model"]
    assert "smollm2:135m" in told["faults"][0]["hint"]


def test_aliases_that_lead_nowhere_or_hide_a_model_are_warned_of(home: Path) -> None:
    Library(home / "models").add(ModelSpec(name="mine", runner="echo"))
    (home / "config.toml").write_text(
        'aliases = {mine = "gone", good = "echo"}\nengine.preload = ["good"]\n'
    )
    warnings = json.loads(hisar_config("check", "--json").stdout)["warnings"]
    assert len(warnings) == 3
    assert "hides" in warnings[0]
    assert "'gone'" in warnings[1]
    assert "'echo'" in warnings[2]


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
