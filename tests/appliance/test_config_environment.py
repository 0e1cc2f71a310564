"""What the environment may say, and what is said of variables that nothing reads."""

from pathlib import Path

import pytest

from appliance.config import Config
from appliance.environment import configured, read_environment, worker_environment
from appliance.errors import ConfigError


def test_the_home_folder_is_chosen_by_hisar_home_then_xdg_then_the_users_home() -> None:
    def root(**variables: str) -> Path:
        return read_environment({"HOME": "/home/ayşe", **variables}).home.root

    assert root() == Path("/home/ayşe/.local/share/hisar")
    assert root(XDG_DATA_HOME="/data") == Path("/data/hisar")
    assert root(XDG_DATA_HOME="relative") == Path("/home/ayşe/.local/share/hisar")
    assert root(XDG_DATA_HOME="/data", HISAR_HOME="/srv/ğüş") == Path("/srv/ğüş")
    assert root(HISAR_HOME="~/box") == Path("/home/ayşe/box")
    assert root(HISAR_HOME="") == root()
    assert root(HISAR_HOME="here") == Path.cwd() / "here"


def test_an_unknown_variable_of_ours_is_warned_of_with_the_nearest_right_name() -> None:
    environment = read_environment(
        {"HOME": "/h", "HISAR_HOEM": "/x", "HISAR_TEST_URL": "x", "OTHER": "x"}
    )
    (warning,) = environment.warnings
    assert "HISAR_HOEM" in warning
    assert "HISAR_HOME" in warning


def test_the_log_level_can_be_set_and_a_wrong_one_is_refused() -> None:
    assert read_environment({"HOME": "/h"}).log_level is None
    assert read_environment({"HOME": "/h", "HISAR_LOG_LEVEL": "DEBUG"}).log_level == "debug"
    with pytest.raises(ConfigError, match="warning"):
        read_environment({"HOME": "/h", "HISAR_LOG_LEVEL": "warn"})


def test_a_worker_spins_briefly_and_rounds_alike_unless_the_operator_says_otherwise() -> None:
    ours = {"GOMP_SPINCOUNT": "1000", "TRITON_DEFAULT_FP_FUSION": "1"}
    assert worker_environment({"PATH": "/bin"}) == {"PATH": "/bin", **ours}
    theirs = {"GOMP_SPINCOUNT": "7", "TRITON_DEFAULT_FP_FUSION": "0"}
    assert worker_environment(theirs) == theirs


def test_the_environment_overrides_the_log_level_alone() -> None:
    assert configured(Config(), {}) == Config()
    changed = configured(Config(), {"HISAR_LOG_LEVEL": "debug"})
    assert changed.logs.level == "debug"
    assert changed.gateway == Config().gateway
