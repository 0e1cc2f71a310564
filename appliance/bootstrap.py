"""From a fresh clone to a working `.venv`, with nothing but the system's Python.

    python3 -I appliance/bootstrap.py            what the box needs to run
    python3 -I appliance/bootstrap.py --tests    and what its tests need, installed where it may be

Checks come first, each with one line and an exit code of its own (see EXIT_CODES). A second run
that finds nothing changed does nothing. This file imports no other of ours and is kept readable
for a Python that is too old, so that it can say so.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXIT_CODES = {
    "python": 10,
    "venv": 11,
    "compiler": 12,
    "disk": 13,
    "permission": 14,
    "install": 15,
    "build": 16,
}
OLDEST_PYTHON = (3, 11)
NEWER_PYTHONS = ("python3.13", "python3.12", "python3.11", "python3.14")
COMPILERS = ("c++", "g++", "clang++")
# The environment, the engine's build tree and wheel, the small model: measured 1.1 GB in all. For
# the tests also torch with its CUDA libraries: 5.3 GB.
NEEDED_BYTES = 1_500_000_000
NEEDED_FOR_TESTS_BYTES = 7_000_000_000
CMAKE_ARGS = "-DLLAVA_BUILD=OFF"
TELL_EVERY_S = 15.0

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "hisar.stamp"
RUNTIME = ROOT / "requirements.txt"
DEVELOPMENT = ROOT / "requirements-dev.txt"
ENGINE = ROOT / "requirements-llamacpp.txt"


class NotReadyError(Exception):
    """The machine lacks something: one line, and its exit code."""

    def __init__(self, what: str, line: str) -> None:
        super().__init__(line)
        self.exit_code = EXIT_CODES[what]


def main(arguments: list[str]) -> int:
    """Bring the environment up to date."""
    parser = argparse.ArgumentParser(prog="bootstrap", description="Prepare .venv.")
    parser.add_argument("--tests", action="store_true", help="also what the tests need")
    for_tests = parser.parse_args(arguments).tests
    try:
        if for_tests:
            install_missing()
        check_python()
        check_venv()
        check_writable()
        if is_up_to_date(for_tests):
            return 0
        check_compiler()
        check_disk(NEEDED_FOR_TESTS_BYTES if for_tests else NEEDED_BYTES)
        build(for_tests)
    except NotReadyError as error:
        sys.stderr.write("error: %s\n" % error)  # noqa: UP031 - readable for an old Python
        return error.exit_code
    return 0


def check_python() -> None:
    """A Python that is new enough; else start over with a newer one that is also here."""
    if sys.version_info >= OLDEST_PYTHON:
        return
    for name in NEWER_PYTHONS:
        newer = shutil.which(name)
        if newer:
            os.execv(newer, [newer, "-I", *sys.argv])  # noqa: S606
    raise NotReadyError(
        "python",
        f"Python {platform.python_version()} in {sys.executable} is too old: Hisar needs 3.11"
        " or newer; install one, or name it: make PYTHON=/path/to/python3.11",
    )


def check_venv() -> None:
    """The module venv with ensurepip, which Debian keeps in a package of its own."""
    if not all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")):
        raise NotReadyError(
            "venv",
            f"{sys.executable} has no module venv;"
            " install it: apt-get install python3-venv (Debian, Ubuntu)",
        )


def check_writable() -> None:
    """The checkout and the cache of built wheels."""
    for folder in (ROOT, VENV if VENV.exists() else ROOT, cache()):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=str(folder)):
                pass
        except OSError as error:
            raise NotReadyError(
                "permission",
                f"{folder} cannot be written to ({error.strerror});"
                " run as its owner, or clone to a folder of your own",
            ) from error


def check_compiler() -> None:
    """A C++ compiler, unless the engine is built already."""
    if not (built_wheel() or any(shutil.which(name) for name in COMPILERS)):
        raise NotReadyError(
            "compiler",
            f"no C++ compiler on the PATH (looked for {', '.join(COMPILERS)});"
            " install one: apt-get install g++ (Debian, Ubuntu), xcode-select --install (macOS)",
        )


def check_disk(needed: int) -> None:
    """Room for the environment, the engine's build and the small model."""
    free = shutil.disk_usage(str(ROOT)).free
    if free < needed:
        raise NotReadyError(
            "disk",
            f"{ROOT} has {free / 1e9:.1f} GB free and {needed / 1e9:.1f} GB are needed;"
            " free some space, or clone to a larger disk",
        )


def build(for_tests: bool) -> None:
    """Make the environment anew where it is missing or of another Python, then fill it."""
    if not usable_venv():
        say(f"making {VENV}")
        run("install", sys.executable, "-m", "venv", "--clear", str(VENV))
    STAMP.unlink(missing_ok=True)
    say("installing the pinned packages")
    pip("install", "--require-hashes", "-r", str(DEVELOPMENT if for_tests else RUNTIME))
    wheel = built_wheel() or build_wheel()
    pip("install", "--no-deps", str(wheel))
    pip("install", "--no-deps", "--editable", str(ROOT))
    name_clone_in_ascii()
    STAMP.write_text(fingerprint(for_tests), encoding="utf-8")


def name_clone_in_ascii() -> None:
    """Let the environment find this folder by a relative path.

    pip writes the whole one, which may hold any letter, and under LC_ALL=C Python 3.11 reads that
    file as ASCII: it would not start.
    """
    for packages in VENV.glob("lib/python*/site-packages"):
        for link in packages.glob("*hisar*.pth"):
            link.write_text(os.path.relpath(str(ROOT), str(packages)) + "\n", encoding="ascii")


def is_up_to_date(for_tests: bool) -> bool:
    """Whether an earlier run did all that this one would; one for the tests did more."""
    stamps = {fingerprint(True), fingerprint(for_tests)}
    return STAMP.is_file() and STAMP.read_text(encoding="utf-8") in stamps


def usable_venv() -> bool:
    """Whether `.venv` has a pip of its own and the Python that runs this."""
    check = "import pip, sys; sys.exit(sys.version_info[:2] != (%d, %d))" % sys.version_info[:2]  # noqa: UP031
    try:
        return subprocess.run([str(python()), "-c", check], check=False).returncode == 0
    except OSError:
        return False


def build_wheel() -> Path:
    """Compile the engine for this processor: minutes the first time, then kept in the cache."""
    say("building llama.cpp for this processor; this takes some minutes, once")
    folder = wheel_folder()
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "build.log"
    with tempfile.TemporaryDirectory(dir=str(folder)) as fresh, log.open("wb") as output:
        command = [str(python()), "-m", "pip", "wheel", "--no-deps", "--require-hashes",
                   "--no-binary", "llama-cpp-python", "--wheel-dir", fresh,
                   "-r", str(ENGINE)]  # fmt: skip
        environment = dict(os.environ, CMAKE_ARGS=CMAKE_ARGS)
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        exit_code = watch(process)
        if exit_code:
            raise NotReadyError("build", f"llama.cpp was not built; {log} says why")
        for wheel in Path(fresh).glob("*.whl"):
            wheel.replace(folder / wheel.name)
    built = built_wheel()
    if built is None:
        raise NotReadyError("build", f"llama.cpp was built without a wheel; {log} says more")
    return built


def watch(process: subprocess.Popen[bytes]) -> int:
    """Say now and then that the build goes on. Its exit code."""
    started_at = time.monotonic()
    while True:
        try:
            return process.wait(TELL_EVERY_S)
        except subprocess.TimeoutExpired:
            say(f"still building llama.cpp, {time.monotonic() - started_at:.0f} s so far")
        except BaseException:
            process.kill()
            process.wait()
            raise


def built_wheel() -> Path | None:
    """The engine's wheel for this processor, if an earlier run has built it."""
    return next(iter(sorted(wheel_folder().glob("llama_cpp_python-*.whl"))), None)


def wheel_folder() -> Path:
    """Where the engine built from these sources, for this Python and this processor, is kept."""
    parts = (
        ENGINE.read_text(encoding="utf-8"),
        CMAKE_ARGS,
        platform.python_version_tuple()[:2],
        platform.machine(),
        processor_flags(),
    )
    return cache() / "wheels" / hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def processor_flags() -> str:
    """What the processor can do: the build uses all of it, so it fits no lesser one."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    words = [line for line in lines if line.startswith(("flags", "Features"))]
    return " ".join(sorted(words[0].partition(":")[2].split())) if words else ""


def cache() -> Path:
    """Where built wheels are kept between clones."""
    return Path("~/.cache/hisar").expanduser()


def fingerprint(for_tests: bool) -> str:
    """Changes when the environment must be brought up to date."""
    digest = hashlib.sha256(f"{sys.version_info[:2]} {ROOT} {for_tests}".encode())
    for path in (RUNTIME, DEVELOPMENT, ENGINE, ROOT / "pyproject.toml", Path(__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest() + "\n"


def install_missing() -> None:
    """On Debian as root: the packages that the tests need. Elsewhere they are only looked for."""
    wanted = {
        "python3-venv": bool(importlib.util.find_spec("ensurepip")),
        "g++": any(shutil.which(name) for name in COMPILERS),
        "postgresql": has_postgresql(),
        "default-jre-headless": shutil.which("java") is not None,
        "maven": shutil.which("mvn") is not None,
    }
    missing = [package for package, is_here in wanted.items() if not is_here]
    if missing and os.getuid() == 0 and shutil.which("apt-get"):
        say("installing " + " ".join(missing))
        environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        for arguments in (["update", "-qq"], ["install", "-y", "-qq", *missing]):
            subprocess.run(["apt-get", *arguments], env=environment, check=False)  # noqa: S607
    if not has_postgresql():
        say("PostgreSQL is not installed: the tests that need it are left out")


def has_postgresql() -> bool:
    """Whether a server's programs are here: Debian keeps them off the PATH."""
    kept = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return shutil.which("initdb") is not None or any(kept)


def python() -> Path:
    """The environment's interpreter."""
    return VENV / "bin" / "python"


def pip(*arguments: str) -> None:
    """Run the environment's pip, quietly."""
    run("install", str(python()), "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments)


def run(what: str, *command: str) -> None:
    """Run a command whose own output says what went wrong."""
    if subprocess.run(command, check=False).returncode:
        raise NotReadyError(what, f"`{' '.join(command)}` failed; what it said stands above")


def say(line: str) -> None:
    """One line of progress."""
    sys.stderr.write(f"hisar: {line}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
