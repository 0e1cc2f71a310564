"""A box as its users run it, started by `hisar up` on the small model, for benchmarks."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from msgspec import Struct

from tests.bench.load import read_key
from tests.small_model import PATH

MODEL = "smollm2:135m"


class RealBox(Struct, frozen=True, kw_only=True):
    """A running box: where its door is, and its processes."""

    port: int
    key: str
    started_at: float
    process: psutil.Process

    def resident_mb(self, module: str) -> float:
        """Resident memory of the child that runs `python -m MODULE`."""
        for child in self.process.children(recursive=True):
            if module in child.cmdline():
                return child.memory_info().rss / 2**20
        raise LookupError(module)


@contextmanager
def home_with_model(path: Path = PATH) -> Iterator[Path]:
    """A HISAR_HOME in which the small model, or another in its place, is in the library."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        _hisar(home, "models", "import", str(path), "--name", MODEL)
        yield home


@contextmanager
def real_box(home: Path, config: str = "") -> Iterator[RealBox]:
    """`hisar up` until the block ends; ready for requests on entry. `config` is TOML."""
    (home / "config.toml").write_text(config, encoding="utf-8")
    port = free_port()
    started_at = time.perf_counter()
    with (home / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "appliance", "up", "--port", str(port)],
            env={**os.environ, "HISAR_HOME": str(home)},
            stdout=log,
            stderr=log,
        )
        try:
            await_door(port, process)
            yield RealBox(
                port=port,
                key=read_key(home),
                started_at=started_at,
                process=psutil.Process(process.pid),
            )
        finally:
            process.terminate()
            process.wait()


def await_door(port: int, process: subprocess.Popen[bytes], path: str = "/health/ready") -> None:
    """Poll readiness every 10 ms, as a load balancer in a hurry would."""
    while process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as link:
                link.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
                if link.recv(64).startswith(b"HTTP/1.1 200"):
                    return
        except OSError:
            pass
        time.sleep(0.01)
    raise RuntimeError("the box ended before it was ready")


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _hisar(home: Path, *words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "appliance", *words],
        env={**os.environ, "HISAR_HOME": str(home)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
