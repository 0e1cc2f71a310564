"""What the environment says: the only place that reads environment variables.

HISAR_HOME       where the box keeps all state (default: hisar/ under XDG_DATA_HOME, or under
                 ~/.local/share)
HISAR_LOG_LEVEL  overrides `logs.level` of the configuration
HISAR_API_KEY    the key that `hisar chat` and `hisar run` use instead of this box's own

Variables of the tools underneath (package index, proxies, certificates) are left to those tools.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, get_args

from msgspec import Struct, structs

from appliance.config import Config, LogLevel
from appliance.errors import ConfigError
from appliance.home import Home
from appliance.nearest import nearest
from appliance.secrets import SecretBytes

_NAMES: Final = ("HISAR_HOME", "HISAR_LOG_LEVEL", "HISAR_API_KEY")
# Rounds of a waiting thread, some microseconds; longer than most waits in a quiet machine's step.
_SPIN_COUNT: Final = "1000"
# Products and sums in one operation, as Triton compiles by default before 3.10. It decides how
# kernels round, so it is not left to the version.
_FP_FUSION: Final = "1"
# Variables of the box's own test suite.
_TEST_PREFIX: Final = "HISAR_TEST_"


class Environment(Struct, frozen=True, kw_only=True):
    """What the environment says about this box. `warnings` name variables nothing reads."""

    home: Home
    log_level: LogLevel | None = None
    warnings: tuple[str, ...] = ()
    api_key: SecretBytes | None = None


def read_environment(variables: Mapping[str, str] | None = None) -> Environment:
    """Read the environment (or `variables`). Raises ConfigError `config.out_of_range`."""
    variables = os.environ if variables is None else variables
    api_key = variables.get("HISAR_API_KEY", "")
    return Environment(
        home=Home(root=_home_root(variables)),
        log_level=_log_level(variables.get("HISAR_LOG_LEVEL", "")),
        warnings=tuple(
            _unknown(name)
            for name in sorted(variables)
            if name.startswith("HISAR_")
            and not name.startswith(_TEST_PREFIX)
            and name not in _NAMES
        ),
        api_key=SecretBytes(os.fsencode(api_key)) if api_key else None,
    )


def configured(config: Config, variables: Mapping[str, str] | None = None) -> Config:
    """The configuration with what the environment overrides. Raises ConfigError."""
    level = read_environment(variables).log_level
    if level is None:
        return config
    return structs.replace(config, logs=structs.replace(config.logs, level=level))


def worker_environment(
    variables: Mapping[str, str] | None = None, *, deterministic: bool = False
) -> dict[str, str]:
    """What an engine worker finds in its environment: ours, and what its libraries go by.

    llama.cpp's threads wait for each other some hundred times a token. By default OpenMP spins for
    milliseconds before it sleeps, so on a crowded machine they burn the time they wait for: 40
    tokens took 29 s as it comes and 7 s with a count of 2000 (load 9 on 2 cores, one run each). On
    a quiet one a short spin was as fast within the noise. An operator's own settings stay.

    A `deterministic` one does without ggml's kernel for many rows of a K-quant format: it rounds
    in another way than the one for few.
    """
    variables = os.environ if variables is None else variables
    kernels = {"GGML_CPU_TILED_MM": "0"} if deterministic else {}
    defaults = {"GOMP_SPINCOUNT": _SPIN_COUNT, "TRITON_DEFAULT_FP_FUSION": _FP_FUSION}
    return {**defaults, **variables, **kernels}


def _home_root(variables: Mapping[str, str]) -> Path:
    if chosen := variables.get("HISAR_HOME", ""):
        return Path(os.path.abspath(_expand_user(chosen, variables)))  # noqa: PTH100 keeps symlinks
    # The XDG specification: a relative path here is invalid and ignored.
    data_home = Path(variables.get("XDG_DATA_HOME", ""))
    if not data_home.is_absolute():
        data_home = _expand_user("~/.local/share", variables)
    return data_home / "hisar"


def _expand_user(path: str, variables: Mapping[str, str]) -> Path:
    if path.split("/", 1)[0] == "~" and variables.get("HOME"):
        return Path(variables["HOME"] + path[1:])
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(
            "config.no_home",
            f"cannot tell which folder {path} is: this user has no home directory",
            hint="set HISAR_HOME to a folder of your choice",
        ) from error


def _log_level(value: str) -> LogLevel | None:
    if not value:
        return None
    levels: tuple[LogLevel, ...] = get_args(LogLevel)
    for level in levels:
        if level == value.casefold():
            return level
    guess = nearest(value, levels)
    raise ConfigError(
        "config.out_of_range",
        f"HISAR_LOG_LEVEL is {value!r}; it can be one of {', '.join(levels)}",
        hint=f"did you mean {guess}?" if guess else "",
    )


def _unknown(name: str) -> str:
    guess = nearest(name, _NAMES)
    return f"nothing reads the environment variable {name}" + (
        f"; did you mean {guess}?" if guess else ""
    )
