"""The box's own source files, for the tests that hold it to its rules."""

import ast
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("appliance", "gateway", "engines", "guardrails", "tui")


@cache
def modules() -> tuple[Path, ...]:
    """Every module of the five packages."""
    return tuple(path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))


@cache
def tree_of(path: Path) -> ast.Module:
    """The module, parsed."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
