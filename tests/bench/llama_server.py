"""llama-server, built from the llama.cpp source inside the llama-cpp-python sdist that we link.

The same commit and the same compiler flags as our own engine: what differs is the server.
"""

import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from appliance import bootstrap
from tests.bench.report import NotMeasuredError
from tests.bench.rivals import serving
from tests.small_model import PATH

CMAKE_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
)


def built() -> Path:
    """The program, built on first use (ten minutes on two cores) and kept beside the wheel.

    Raises NotMeasuredError where it cannot be built.
    """
    folder = bootstrap.wheel_folder() / "llama-server"
    program = folder / "bin" / "llama-server"
    if not program.exists():
        if shutil.which("cmake") is None:
            raise NotMeasuredError("llama-server is built with cmake, which is not here")
        with tempfile.TemporaryDirectory() as fresh:
            _build(_source(Path(fresh)), folder)
    return program


@contextmanager
def llama_server(*options: str) -> Iterator[int]:
    """A running llama-server on the small model; the port it listens on."""
    with serving(str(built()), "-m", str(PATH), *options) as port:
        yield port


def _source(folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
    subprocess.run(
        [*pip, "--require-hashes", "-r", str(bootstrap.ENGINE), "-d", str(folder)], check=True
    )
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (source,) = folder.glob("*/vendor/llama.cpp")
    return source


def _build(source: Path, folder: Path) -> None:
    build = ["cmake", "--build", str(folder), "--target", "llama-server", "-j", "2"]
    subprocess.run(["cmake", "-S", str(source), "-B", str(folder), *CMAKE_OPTIONS], check=True)  # noqa: S607
    subprocess.run(build, check=True)
