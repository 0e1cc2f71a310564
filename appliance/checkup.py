"""What is looked at to say whether a box is well: the machine, the state, the running processes.

Nothing is changed by looking, and each look says what it found and, where it is wrong, what to do.
"""

import asyncio
import importlib.metadata
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Final, TypeAlias

from msgspec import Struct

from appliance.catalogue import Library
from appliance.config import Config
from appliance.config_file import load
from appliance.devices import free_disk_bytes, take_inventory
from appliance.environment import Environment
from appliance.errors import CatalogueError, ConfigError, HisarError
from appliance.known_models import KNOWN_MODELS
from appliance.machine import require_free_port, require_writable
from appliance.pull import verify
from appliance.sources.fetching import megabytes

_OLDEST_PYTHON: Final = (3, 11)
_COMPILERS: Final = ("c++", "g++", "clang++")
_NEEDED_DISK_BYTES: Final = 1_000_000_000
_NEEDED_MEMORY_BYTES: Final = 1_000_000_000


class Check(Struct, frozen=True, kw_only=True):
    """One thing that was looked at. `hint` is empty where nothing is wrong."""

    name: str
    ok: bool
    found: str
    hint: str = ""


class Patient(Struct, frozen=True, kw_only=True):
    """The box that is looked at. `is_running`: its gateway answers."""

    environment: Environment
    config: Config
    is_running: bool


_Look: TypeAlias = Callable[[Patient], str]


def examine(environment: Environment, *, is_running: bool) -> tuple[Check, ...]:
    """Look at everything. A broken configuration is one finding; the rest is seen by defaults."""
    config_check, config = _config(environment)
    patient = Patient(environment=environment, config=config, is_running=is_running)
    return (config_check, *(_look(name, look, patient) for name, look in _LOOKS.items()))


def _look(name: str, look: _Look, patient: Patient) -> Check:
    try:
        return Check(name=name, ok=True, found=look(patient))
    except HisarError as error:
        return Check(name=name, ok=False, found=error.message, hint=error.hint)


def _config(environment: Environment) -> tuple[Check, Config]:
    path = environment.home.config
    try:
        config = load(path)
    except ConfigError as error:
        hint = error.hint or "correct the file; `hisar config check` reads it again"
        return Check(name="config", ok=False, found=error.message, hint=hint), Config()
    found = str(path) if path.exists() else f"no {path}: defaults"
    return Check(name="config", ok=True, found=found), config


def _python(_: Patient) -> str:
    if sys.version_info < _OLDEST_PYTHON:
        raise HisarError(
            "machine.python_old", f"Python {platform.python_version()}", hint="use 3.11 or newer"
        )
    return f"Python {platform.python_version()} in {sys.executable}"


def _variables(patient: Patient) -> str:
    if patient.environment.warnings:
        raise HisarError(
            "environment.unknown",
            "; ".join(patient.environment.warnings),
            hint="correct the name, or unset it",
        )
    return f"HISAR_HOME is {patient.environment.home.root}"


def _home(patient: Patient) -> str:
    root = patient.environment.home.root
    if not root.exists():
        return f"{root} is not made yet"
    require_writable(root)
    return f"{root} can be written to"


def _disk(patient: Patient) -> str:
    root = patient.environment.home.root
    free = free_disk_bytes(root)
    if free < _NEEDED_DISK_BYTES:
        raise HisarError(
            "machine.disk_full",
            f"{megabytes(free)} are free for {root}",
            hint=f"free some space: {megabytes(_NEEDED_DISK_BYTES)} are needed",
        )
    return f"{megabytes(free)} are free for {root}"


def _memory(_: Patient) -> str:
    memory = take_inventory().memory
    found = f"{megabytes(memory.available_bytes)} of {megabytes(memory.total_bytes)} are available"
    if memory.available_bytes < _NEEDED_MEMORY_BYTES:
        raise HisarError(
            "machine.memory_low", found, hint="end other programs, or load a smaller model"
        )
    return found


def _processor(_: Patient) -> str:
    cpu = take_inventory().cpu
    flags = ", ".join(cpu.flags) or "no vector flags known"
    return f"{cpu.architecture}, {cpu.num_cores} cores, {flags}"


def _accelerators(_: Patient) -> str:
    return ", ".join(gpu.name for gpu in take_inventory().gpus) or "none"


def _compiler(_: Patient) -> str:
    found = next((path for name in _COMPILERS if (path := shutil.which(name))), None)
    return found or "none; needed only to build the engine anew"


def _engine(_: Patient) -> str:
    """Load the library in a process of its own, as a worker would."""
    done = subprocess.run(
        [sys.executable, "-c", "import llama_cpp"], capture_output=True, check=False
    )
    if done.returncode:
        raise HisarError(
            "engine.not_installed",
            "llama-cpp-python cannot be loaded",
            hint="run `make up` again; it builds what is missing",
        )
    return f"llama-cpp-python {importlib.metadata.version('llama-cpp-python')}"


def _store(patient: Patient) -> str:
    from appliance.store.store import open_store

    home, url = patient.environment.home, patient.config.store.url
    if not url and not home.database.exists():
        return f"{home.database} is not made yet"

    async def visit() -> str:
        store = await open_store(url, home)
        await store.close()
        return store.name

    return f"{asyncio.run(visit())} is reachable and of this version"


def _models(patient: Patient) -> str:
    library = Library(patient.environment.home.models)
    for broken in library.broken():
        raise CatalogueError(
            "model.manifest_broken",
            f"{broken.folder}: {broken.reason}",
            hint="remove the folder, and fetch the model again",
        )
    for spec in library.list():
        verify(library, spec, in_full=False)
    names = [spec.name for spec in library.list()]
    wanted = [patient.config.aliases.get(name, name) for name in patient.config.engine.preload]
    missing = [name for name in wanted if name not in names]
    for name in missing:
        if name not in KNOWN_MODELS:
            library.get(name)
    return ", ".join(names + [f"{name} (fetched by `hisar up`)" for name in missing]) or "none"


def _port(patient: Patient) -> str:
    gateway = patient.config.gateway
    if patient.is_running:
        return "the box itself has it"
    require_free_port(gateway.host, gateway.port)
    return f"{gateway.port} on {gateway.host} is free"


_LOOKS: Final[dict[str, _Look]] = {
    "environment": _variables,
    "python": _python,
    "compiler": _compiler,
    "processor": _processor,
    "accelerators": _accelerators,
    "memory": _memory,
    "disk": _disk,
    "home": _home,
    "store": _store,
    "models": _models,
    "engine": _engine,
    "port": _port,
}
