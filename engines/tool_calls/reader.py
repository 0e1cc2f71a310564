"""An answer that may hold tool calls, told apart as it comes: content on one side, calls on the
other, and nothing of the markup in either.
"""

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from msgspec import Struct

from engines.tool_calls.call_object import CallObject
from engines.tool_calls.call_text import CallState, CallText
from engines.tool_calls.formats import CallFormat
from engines.tool_calls.named_call import NamedCall


class CallPiece(Struct, frozen=True, kw_only=True):
    """New of one call: its name once, at the first piece; `arguments` concatenate to the whole."""

    call_index: int
    name: str = ""
    arguments: str = ""


# Content is a plain string.
Piece: TypeAlias = str | CallPiece

_SPACE: Final = re.compile(r"\s*")


class CallReader:
    """Reads one answer. However it is cut into pushes, the pieces amount to the same.

    Space around calls belongs to nothing. A block that holds no call of an offered function is
    content, without its markup. `is_cut` says that a call began and did not become one: it was
    never finished, or its arguments are no JSON object; what follows such a call is dropped.
    """

    def __init__(self, call_format: CallFormat, names: frozenset[str], *, takes_many: bool) -> None:
        self._format = call_format
        self._names = names
        self._takes_many = takes_many
        self._markup = _markup(call_format)
        self._read: Callable[[str], str] = self._read_start
        self._pieces: list[Piece] = []
        self._held = ""
        self._block = ""
        self._is_bare = False
        self._call = self._new_call()
        self._num_told = 0
        self.num_complete = 0
        self.is_cut = False

    @property
    def is_done(self) -> bool:
        """The one call that was allowed is complete: nothing more is wanted."""
        return not self._takes_many and self.num_complete == 1

    def push(self, text: str) -> list[Piece]:
        """What `text` completes."""
        while text:
            text = self._read(text)
        return self._take()

    def finish(self, *, was_cut: bool = False) -> list[Piece]:
        """What was held back, when no text follows; half a marker only where the model ended it."""
        if self._read in (self._read_start, self._read_text):
            self._end_in_text(self._num_held(self._held) if was_cut else 0)
        elif self._read in (self._read_prefix, self._read_call):
            self._end_inside_block()
        return self._take()

    def _end_in_text(self, num_markup: int) -> None:
        text = self._held
        if num_markup:
            self.is_cut = True
            text = text[:-num_markup].rstrip()
        if text.strip() or not self._num_told:
            self._say(text)

    def _end_inside_block(self) -> None:
        if self._is_bare and not self._call.name:
            self._say(self._markup.sub("", self._block + self._call.written))
        else:
            self.is_cut = True

    def _take(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return pieces

    def _say(self, text: str) -> None:
        if text:
            self._pieces.append(text)

    def _read_start(self, text: str) -> str:
        """Before anything but space: where the family needs no opening, an object may be a call."""
        self._held += text
        start = _skip_space(self._held)
        if start == len(self._held):
            return ""
        self._read = self._read_text
        if not self._format.opens_bare or self._held[start] != "{":
            text, self._held = self._held, ""
            return text
        text = self._held[start:]
        self._open_block(self._held[:start], is_bare=True)
        return text

    def _read_text(self, text: str) -> str:
        """Content, up to the markup of a block; space and what may become markup are held back."""
        text, self._held = self._held + text, ""
        found = self._markup.search(text)
        if found is None:
            kept = len(text[: len(text) - self._num_held(text)].rstrip())
            self._say(text[:kept])
            self._held = text[kept:]
            return ""
        before = text[: found.start()]
        if found[0] != self._format.opening:
            self._say(before)  # Markup that belongs to no block.
        else:
            self._say(before.rstrip())
            self._open_block(before[len(before.rstrip()) :])
        return text[found.end() :]

    def _num_held(self, text: str) -> int:
        """The length of the longest end of `text` that markup may start with."""
        return max(
            length
            for marker in self._format.markers
            for length in range(len(marker))
            if text.endswith(marker[:length])
        )

    def _open_block(self, space: str, *, is_bare: bool = False) -> None:
        self._block = space
        self._is_bare = is_bare
        self._held = ""
        self._call = self._new_call()
        has_prefix = self._format.prefix and not is_bare
        self._read = self._read_prefix if has_prefix else self._read_call

    def _new_call(self) -> CallText:
        call_format = self._format
        if not call_format.arguments_marker:
            return CallObject(self._names, call_format.arguments_key)
        return NamedCall(self._names, call_format.arguments_marker, call_format.id_marker)

    def _read_prefix(self, text: str) -> str:
        start = _skip_space(text)
        self._block += text[:start]
        if start == len(text):
            return ""
        if text[start] != self._format.prefix:
            return self._give_up(text[start:])
        self._block += self._format.prefix
        self._read = self._read_call
        return text[start + 1 :]

    def _read_call(self, text: str) -> str:
        call = self._call
        rest = call.read(text)
        self._tell(call)
        if call.state is CallState.COMPLETE:
            self.num_complete += 1
            self._num_told += 1
            self._read = self._drop if self.is_done else self._read_closing
        elif call.state is CallState.BROKEN and call.name:
            self.is_cut = True
            self._read = self._drop
        elif call.state is CallState.BROKEN:
            return self._give_up(call.written + rest)
        return rest

    def _tell(self, call: CallText) -> None:
        if not call.name:
            return
        arguments = call.take_arguments()
        name = "" if call.is_told else call.name
        call.is_told = True
        if name or arguments:
            piece = CallPiece(call_index=self._num_told, name=name, arguments=arguments)
            self._pieces.append(piece)

    def _give_up(self, rest: str) -> str:
        """The block holds no call: all of it but its opening is content."""
        content, self._block = self._block + rest, ""
        self._read = self._read_text
        return content

    def _read_closing(self, text: str) -> str:
        """After a call: space, then a separator and another one, or the closing."""
        self._held += text
        start = _skip_space(self._held)
        rest = self._held[start:]
        if not rest:
            return ""
        separator, closing = self._format.separator, self._format.closing
        if separator and rest.startswith(separator):
            self._open_next()
            return rest[len(separator) :]
        if closing.startswith(rest) and rest != closing:
            return ""
        self._read = self._read_text
        if closing and rest.startswith(closing):
            self._held = ""
            return rest[len(closing) :]
        text, self._held = self._held, ""
        return text

    def _open_next(self) -> None:
        self._block, self._held = "", ""
        self._call = self._new_call()
        self._read = self._read_call

    def _drop(self, _text: str) -> str:
        return ""


def _markup(call_format: CallFormat) -> re.Pattern[str]:
    """What is never content: the opening, and a closing that is more than a bracket."""
    words = [word for word in call_format.markers if len(word) > 1]
    return re.compile("|".join(map(re.escape, words)))


def _skip_space(text: str) -> int:
    """Where the space at the start of `text` ends."""
    found = _SPACE.match(text)
    return found.end() if found else 0
