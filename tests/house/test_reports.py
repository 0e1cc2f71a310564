"""The table of public bug reports says which test holds each, and those tests say so, too."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.source import ROOT, tree_of

TESTS = ROOT / "tests"
_REPORT = re.compile(r"[\w.-]+#\d+")
_FILE = re.compile(r"`([\w/]+\.py)`")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def rows() -> Iterator[tuple[str, str]]:
    """The reports and what holds them, row by row."""
    for line in (TESTS / "reports.md").read_text().splitlines():
        if line.startswith("| ") and "#" in line:
            reports, _, held_by = line.strip("| ").split(" | ")
            yield reports, held_by


def named_in(file: str) -> set[str]:
    """The reports that the docstrings of a test file name."""
    nodes = (node for node in ast.walk(tree_of(TESTS / file)) if isinstance(node, _DOCUMENTED))
    return {report for node in nodes for report in _REPORT.findall(ast.get_docstring(node) or "")}


@pytest.mark.parametrize(("reports", "held_by"), list(rows()))
def test_a_report_is_held_where_the_table_says(reports: str, held_by: str) -> None:
    wanted = set(_REPORT.findall(reports))
    files = _FILE.findall(held_by)
    if not files:
        assert held_by.startswith("not yet: ")
        return
    named = {file: named_in(file) for file in files}
    assert all(found & wanted for found in named.values())
    assert wanted <= set().union(*named.values())
