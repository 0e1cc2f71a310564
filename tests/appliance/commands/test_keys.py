"""`hisar keys` as a person and as a program use it."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from appliance.api_keys import parse
from appliance.catalogue import Library, ModelSpec
from appliance.commands.keys import keys
from appliance.errors import CatalogueError, StoreError, UsageError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HISAR_HOME", str(tmp_path / "ev"))
    return tmp_path / "ev"


def hisar_keys(*arguments: str) -> Result:
    return CliRunner().invoke(keys, arguments)


def told_as_json(*arguments: str) -> Any:
    result = hisar_keys(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_new_keys_text_is_alone_on_stdout_and_never_shown_again(home: Path) -> None:
    made = hisar_keys("create", "--name", "ayşe", "--days", "3", "--model", "echo")
    text = made.stdout.strip()
    parsed = parse(text)
    assert parsed is not None
    assert "cannot be shown again" in made.stderr
    secret = text.split("_")[2]
    for later in (hisar_keys("list"), hisar_keys("show", parsed.id), hisar_keys("list", "--json")):
        assert parsed.id in later.stdout
        assert secret not in later.output
    for file in home.rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes()


def test_a_key_has_the_scopes_and_limits_it_was_given() -> None:
    made = told_as_json(
        "create", "--scope", "admin", "--tenant", "bank", "--tokens-per-minute", "5"
    )
    shown = told_as_json("show", made["id"])
    assert shown["key"]["scopes"] == ["admin"]
    assert shown["key"]["tenant"] == "bank"
    assert shown["key"]["limits"] == {"tokens_per_minute": 5, "requests_in_flight": None}
    assert shown["num_requests"] == 0


def test_a_revoked_key_is_listed_as_such() -> None:
    made = told_as_json("create")
    assert told_as_json("revoke", made["id"])["state"] == "revoked"
    (listed,) = told_as_json("list")
    assert (listed["id"], listed["state"]) == (made["id"], "revoked")
    assert "revoked" in hisar_keys("list").stdout


def test_unknown_ids_whole_keys_and_odd_names_are_refused() -> None:
    for arguments, kind in (
        (("revoke", "nope"), StoreError),
        (("show", "nope"), StoreError),
        (("show", "hsr_abc"), UsageError),
        (("revoke", "hsr_abc"), UsageError),
        (("create", "--name", "a\x1b[2J"), UsageError),
        (("create", "--name", "x" * 101), UsageError),
        (("create", "--tenant", ""), UsageError),
        (("create", "--tenant", "  "), UsageError),
        (("create", "--tenant", "bank "), UsageError),
        (("create", "--model", ""), CatalogueError),
        (("create", "--model", "nosuch"), CatalogueError),
        (("create", "--model", "echo", "--model", "smollm2:135"), CatalogueError),
        (("show", "\udcff"), UsageError),
    ):
        assert isinstance(hisar_keys(*arguments).exception, kind)
    assert hisar_keys("create", "--days", "0").exit_code == 2
    assert hisar_keys("create", "--scope", "root").exit_code == 2
    assert hisar_keys("create", "--tokens-per-minute", str(10**30)).exit_code == 2
    assert not told_as_json("list")


def test_a_key_may_name_models_of_the_library_and_aliases(home: Path) -> None:
    Library(home / "models").add(ModelSpec(name="org/mine", runner="echo"))
    (home / "config.toml").write_text('aliases = {fast = "org/mine"}')
    made = told_as_json("create", "--model", "org/mine", "--model", "fast")
    assert told_as_json("show", made["id"])["key"]["models"] == ["org/mine", "fast"]
