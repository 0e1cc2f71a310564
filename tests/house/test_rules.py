"""The rules of CONTRIBUTING.md that a program can check."""

import ast
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.house.source import PACKAGES, ROOT, modules, tree_of

_FORBIDDEN_NAMES: Final = frozenset(
    {"utils", "util", "helpers", "helper", "common", "misc", "base"}
)
# Read the process's environment; `dict(os.environ)` for a child process passes it on unread.
_ENVIRONMENT_READERS: Final = frozenset({"environ", "getenv", "environb"})
_HEAVY: Final = ("torch", "triton", "llama_cpp", "numpy")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_file_or_folder_has_a_name_that_says_nothing() -> None:
    for path in modules():
        assert not _FORBIDDEN_NAMES.intersection((path.stem, *path.relative_to(ROOT).parts)), path


@pytest.mark.parametrize("path", modules(), ids=_name)
def test_every_module_says_what_it_decides_and_package_files_are_empty(path: Path) -> None:
    if path.name == "__init__.py":
        assert path.read_text() == ""
    else:
        assert ast.get_docstring(tree_of(path)), "no docstring"


def test_the_environment_is_read_in_one_place() -> None:
    readers = {
        _name(path)
        for path in modules()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute)
        and node.attr in _ENVIRONMENT_READERS
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    }
    assert readers <= {"appliance/environment.py", "appliance/bootstrap.py"}


@pytest.mark.parametrize("module", ["gateway.app", "gateway.__main__"])
def test_the_gateway_starts_without_the_libraries_of_the_engines(module: str) -> None:
    script = f"import sys, {module}; print([m for m in {_HEAVY!r} if m in sys.modules])"
    told = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "[]"


def test_the_guardrails_start_without_network_database_or_web_framework() -> None:
    script = (
        "import sys, guardrails.streaming;"
        "print([m for m in ('litestar', 'sqlalchemy', 'httpx', 'asyncio.base_events')"
        " if m in sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "[]"


def test_sizes_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Guidance, not a gate: files median < 120 lines, functions median <= 10."""
    with capsys.disabled():
        for package in PACKAGES:
            paths = [path for path in modules() if path.is_relative_to(ROOT / package)]
            files = sorted(n for p in paths if (n := len(p.read_text().splitlines())))
            functions = sorted(
                (node.end_lineno or node.lineno) - node.lineno + 1
                for path in paths
                for node in ast.walk(tree_of(path))
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            )
            sys.stdout.write(f"\n{package:11}{_spread(files)} lines a file")
            sys.stdout.write(f", {_spread(functions)} lines a function")
        sys.stdout.write("\n")


def _spread(sizes: list[int]) -> str:
    if not sizes:
        return "   none"
    return f"{len(sizes):4} of {sizes[len(sizes) // 2]:3} (p90 {sizes[len(sizes) * 9 // 10]:3})"
