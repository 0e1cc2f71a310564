"""What JSON text says once its escapes are read, while it is still being written.

`\\u0061` is an `a` to whoever reads the JSON, so words are looked for behind the escapes. RFC 8259,
section 7. What is no escape stands for itself.
"""

import json
import re
from collections import deque
from typing import Final

_HIGH: Final = r"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW: Final = r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE: Final = rf'{_HIGH}{_LOW}|\\u[0-9a-fA-F]{{4}}|\\["\\/bfnrt]'
# An escape at the end that is still being written; after half a surrogate pair comes the other.
_BEGUN: Final = r"\\(?:u[0-9a-fA-F]{0,3})?\Z"
_UNIT: Final = re.compile(rf"(?P<begun>{_HIGH}(?:\Z|{_BEGUN})|{_BEGUN})|{_ESCAPE}|(?s:.)")
_LAST_UNIT: Final = re.compile(rf"{_ESCAPE}|(?s:.)")
_WHOLE: Final = re.compile(_ESCAPE)


class JsonText:
    """Takes JSON text as it comes, tells what it says, and gives it back as far as it may go."""

    def __init__(self) -> None:
        self._begun = ""
        self._kept = ""
        # For each character that was told and not given back, how long it is as written.
        self._lengths: deque[int] = deque()

    def read(self, piece: str) -> str:
        """What the next piece says, as far as its escapes are whole."""
        text, self._begun = self._begun + piece, ""
        said = []
        for unit in _UNIT.finditer(text):
            if unit["begun"]:
                self._begun = unit[0]
                break
            said.append(self._keep(unit[0]))
        return "".join(said)

    def finish(self) -> str:
        """What was begun and never finished, for itself."""
        begun, self._begun = self._begun, ""
        return "".join(self._keep(unit[0]) for unit in _LAST_UNIT.finditer(begun))

    def release(self, num_characters: int) -> str:
        """The text as it was written of the next characters that were told."""
        end = sum(self._lengths.popleft() for _ in range(num_characters))
        released, self._kept = self._kept[:end], self._kept[end:]
        return released

    def _keep(self, unit: str) -> str:
        self._kept += unit
        self._lengths.append(len(unit))
        return _meaning(unit)


def unescape(text: str) -> str:
    """What whole JSON text says."""
    return _WHOLE.sub(lambda found: _meaning(found[0]), text)


def _meaning(unit: str) -> str:
    return unit if len(unit) == 1 else str(json.loads(f'"{unit}"'))
