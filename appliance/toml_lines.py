"""On which line of a TOML text a key stands. Only for messages: reading is left to tomllib."""

import re
from collections.abc import Iterator
from typing import Final

_PART: Final = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_KEY: Final = rf"{_PART}(?:\s*\.\s*{_PART})*"
_TABLE_LINE: Final = re.compile(rf"\s*\[\[?\s*({_KEY})\s*\]\]?")
_KEY_LINE: Final = re.compile(rf"\s*({_KEY})\s*=")
_LONG_QUOTES: Final = re.compile(r'"""|\'\'\'')


def line_of(text: str, path: tuple[str, ...]) -> int:
    """The line (from 1) of the key, or of the nearest table around it; 0 when neither stands."""
    best_line, best_depth = 0, 0
    for line, found in _keys(text):
        depth = len(found)
        if best_depth < depth <= len(path) and path[:depth] == found:
            best_line, best_depth = line, depth
    return best_line


def _keys(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    table: tuple[str, ...] = ()
    is_inside_long_text = False
    for number, line in enumerate(text.splitlines(), start=1):
        if not is_inside_long_text:
            if found := _TABLE_LINE.match(line):
                table = _parts(found[1])
                yield number, table
            elif found := _KEY_LINE.match(line):
                yield number, (*table, *_parts(found[1]))
        if len(_LONG_QUOTES.findall(line)) % 2:
            is_inside_long_text = not is_inside_long_text


def _parts(key: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(_PART, key))
