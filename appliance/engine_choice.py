"""Which engine runs a model here, and how one that is not installed gets installed."""

import importlib.util
import sys
from typing import Final

from appliance.catalogue import ModelSpec
from appliance.config import EngineConfig

# What an engine cannot do without, and the extra of this package that brings it.
_MODULES: Final = {"pytorch": ("torch", "safetensors", "tokenizers", "gguf")}


def choose_runner(spec: ModelSpec, engine: EngineConfig) -> str:
    """A GGUF file is run by the engine that the configuration names, anything else by its own."""
    if spec.runner == "llamacpp" and engine.runner != "auto":
        return engine.runner
    return spec.runner


def is_installed(runner: str) -> bool:
    """Whether an engine's libraries are there. Imports none of them."""
    return all(importlib.util.find_spec(name) for name in _MODULES.get(runner, ()))


def install_line(runner: str) -> str:
    """The command that installs an engine's libraries."""
    return f"{sys.executable} -m pip install 'hisar[{runner}]'"
