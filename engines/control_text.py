"""How control markers typed by a caller stay text: `<|im_end|>` in a message ends no message.

Before rendering, every marker in the caller's strings is replaced by digits that only this request
knows, so a template can trim, split or quote the string and still carry them along. After
rendering, the markers that are there were put there by the template, and the digits turn back into
what was typed.
"""

import re
import secrets
from collections.abc import Iterator
from typing import TypeAlias

from engines.any_of import any_of

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"

# 96 bits as decimal digits: a caller cannot guess them, and no template changes digits.
_NONCE_DIGITS = 29
_INDEX_DIGITS = 5


class ControlText:
    """The control markers of one vocabulary, longest first."""

    def __init__(self, markers: tuple[str, ...]) -> None:
        self._markers = markers
        self._indices = {marker: index for index, marker in enumerate(markers)}
        self._marker = any_of(markers)

    def hide(self, value: Json) -> tuple[Json, str]:
        """A copy of `value` without markers in any of its strings, and the key to undo it."""
        key = str(secrets.randbelow(10**_NONCE_DIGITS)).zfill(_NONCE_DIGITS)
        return self._hide(value, key), key

    def _hide(self, value: Json, key: str) -> Json:
        if isinstance(value, str):
            return self._marker.sub(lambda found: self._stand_in(found[0], key), value)
        if isinstance(value, list):
            return [self._hide(item, key) for item in value]
        if isinstance(value, dict):
            return {str(self._hide(k, key)): self._hide(item, key) for k, item in value.items()}
        return value

    def _stand_in(self, marker: str, key: str) -> str:
        return f"{key}{self._indices[marker]:0{_INDEX_DIGITS}d}"

    def split(self, rendered: str, key: str) -> Iterator[tuple[str, bool]]:
        """The runs of a rendered prompt, each with whether its markers are control tokens.

        What was typed between two of the template's markers is a run of its own where a marker was
        hidden in it, and is tokenised exactly as plain text would be.
        """
        done = start = 0
        for end, next_start in self._fences(rendered):
            if rendered.find(key, start, end) >= 0:
                yield rendered[done:start], True
                yield self._reveal(rendered[start:end], key), False
                done = end
            start = next_start
        yield rendered[done:], True

    def _fences(self, rendered: str) -> Iterator[tuple[int, int]]:
        """Where each of the template's markers starts and ends, and where the text does."""
        for found in self._marker.finditer(rendered):
            yield found.span()
        yield len(rendered), len(rendered)

    def _reveal(self, text: str, key: str) -> str:
        stand_in = rf"{key}(\d{{{_INDEX_DIGITS}}})"
        return re.sub(stand_in, lambda found: self._markers[int(found[1])], text)
