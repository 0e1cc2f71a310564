"""The command line as a person runs it: real processes, a home of their own."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class Hisar:
    """Runs `hisar` with a home of its own, whose path is awkward on purpose."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("HISAR_")},
            "HISAR_HOME": str(home),
        }

    def __call__(
        self, *arguments: str, stdin: str | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "appliance", *arguments],
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL if stdin is None else None,
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )

    def json(self, *arguments: str) -> Any:
        """The one JSON document that a successful run prints."""
        done = self(*arguments, "--json")
        return json.loads(done.stdout)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A run in the background."""
        return subprocess.Popen(
            [sys.executable, "-m", "appliance", *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.fixture
def hisar(tmp_path: Path) -> Hisar:
    """The command line with an empty home."""
    return Hisar(tmp_path / "ev ğüşİı")


class Box:
    """A running box with the model `echo`."""

    def __init__(self, hisar: Hisar) -> None:
        self.hisar = hisar
        self.port = free_port()
        self.process = hisar.start("up", "--model", "echo", "--port", str(self.port), "--json")
        assert self.process.stdout is not None
        self.ready = json.loads(self.process.stdout.readline() or "{}")

    def stop(self) -> tuple[int, str]:
        """Exit code, and what it said on stderr."""
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """One box for the tests of a module."""
    box = Box(Hisar(tmp_path_factory.mktemp("ev ğüşİı") / "home"))
    yield box
    box.stop()
