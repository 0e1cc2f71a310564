"""Where the box keeps its state on this machine: one folder, `HISAR_HOME`, and what lies in it.

config.toml    the configuration (optional; defaults serve)
hisar.db       the embedded database
models/        model files and their manifests
secrets/       pepper and salt keys, mode 0600
keys/          the first API key, written once, mode 0600
run/           locks and pid files
logs/          JSON lines of gateway, host and workers
"""

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Final

from msgspec import Struct

# sun_path holds 108 bytes on Linux and 104 on macOS, the closing zero included.
_MAX_SOCKET_PATH_BYTES: Final = 100


class Home(Struct, frozen=True, kw_only=True):
    """The folder of one box's state."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "config.toml"

    @property
    def database(self) -> Path:
        return self.root / "hisar.db"

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def secrets(self) -> Path:
        return self.root / "secrets"

    @property
    def keys(self) -> Path:
        return self.root / "keys"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def local_key(self) -> Path:
        """The API key made at the first start, for the person at this machine."""
        return self.keys / "local.key"

    @property
    def engine_socket(self) -> Path:
        """Where the engine host listens.

        In `run/`, or, where that path is too long for a Unix socket, in a private folder of the
        system's temporary directory named after the home's path.
        """
        wanted = self.run / "engine.sock"
        if len(os.fsencode(wanted)) <= _MAX_SOCKET_PATH_BYTES:
            return wanted
        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"hisar-{os.getuid()}-{digest}" / "engine.sock"
