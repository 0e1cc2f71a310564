"""How the text of one answer is read: thoughts, content and tool calls apart, content cut at the
first stop string.
"""

from collections.abc import Iterable
from typing import Protocol, TypeAlias

from msgspec import Struct

from engines.prepared import Prepared
from engines.reasoning import ReasoningReader
from engines.stopping import StopMatcher
from engines.tool_calls.reader import CallPiece, CallReader


class Thought(Struct, frozen=True):
    """Text that is no content."""

    text: str


# Content is a plain string, never an empty one.
Piece: TypeAlias = str | Thought | CallPiece


class AnswerReader(Protocol):
    """Takes text as it comes. However it is cut, the pieces amount to the same.

    `matched_stop`: the stop string that ended the content. `num_calls`: complete tool calls.
    `is_cut`: a call began and is none. `is_done`: no more is wanted.
    """

    @property
    def matched_stop(self) -> str | None: ...
    @property
    def num_calls(self) -> int: ...
    @property
    def is_cut(self) -> bool: ...
    @property
    def is_done(self) -> bool: ...
    def push(self, text: str) -> list[Piece]:
        """What `text` completes."""

    def finish(self, *, was_cut: bool = False) -> list[Piece]:
        """What was held back, when no text follows, because the model ended or it `was_cut`."""


def read_answer(prepared: Prepared, stops: tuple[str, ...]) -> AnswerReader:
    """A reader for one answer to a prompt."""
    return PlainReader(stops) if prepared.is_plain else MixedReader(prepared, stops)


class PlainReader:
    """All of it is content."""

    num_calls = 0
    is_cut = False

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stop_matcher = StopMatcher(stops)
        self.is_done = False

    @property
    def matched_stop(self) -> str | None:
        """The stop string that ended the content."""
        return self._stop_matcher.matched_stop

    def push(self, text: str) -> list[Piece]:
        """What may be shown now."""
        shown = self._stop_matcher.push(text)
        self.is_done = self._stop_matcher.matched
        return [shown] if shown else []

    def finish(self, *, was_cut: bool = False) -> list[Piece]:  # noqa: ARG002
        """What was held back as a possible stop string."""
        shown = self._stop_matcher.finish()
        return [shown] if shown else []


class MixedReader:
    """Thoughts first, then content and calls. Stop strings are looked for in content alone."""

    def __init__(self, prepared: Prepared, stops: tuple[str, ...]) -> None:
        self._reasoning = ReasoningReader(prepared.thinking)
        self._calls = _call_reader(prepared)
        self._stops = stops
        self._stop_matcher = StopMatcher(stops)

    @property
    def matched_stop(self) -> str | None:
        """The stop string that ended the content."""
        return self._stop_matcher.matched_stop

    @property
    def num_calls(self) -> int:
        """How many calls are complete."""
        return self._calls.num_complete if self._calls else 0

    @property
    def is_cut(self) -> bool:
        """A call began and is none."""
        return self._calls is not None and self._calls.is_cut

    @property
    def is_done(self) -> bool:
        """A stop string was met, or the one call that was allowed is complete."""
        return self._stop_matcher.matched or (self._calls is not None and self._calls.is_done)

    def push(self, text: str) -> list[Piece]:
        """What `text` completes."""
        return self._apart(*self._reasoning.push(text))

    def finish(self, *, was_cut: bool = False) -> list[Piece]:
        """What was held back, when no text follows; where it was cut, nothing of a marker."""
        pieces = self._apart(*self._reasoning.finish(was_cut=was_cut))
        if self._calls is not None:
            pieces += self._stop(self._calls.finish(was_cut=was_cut))
        rest = self._stop_matcher.finish()
        return [*pieces, rest] if rest else pieces

    def _apart(self, thoughts: str, content: str) -> list[Piece]:
        pieces: list[Piece] = [Thought(thoughts)] if thoughts else []
        if content:
            pieces += self._stop(self._calls.push(content) if self._calls else [content])
        return pieces

    def _stop(self, pieces: Iterable[str | CallPiece]) -> list[Piece]:
        """The pieces up to a stop string. None reaches from before a call to behind it."""
        shown: list[Piece] = []
        for piece in pieces:
            if isinstance(piece, CallPiece):
                text = self._stop_matcher.finish()
                if not self._stop_matcher.matched:
                    self._stop_matcher = StopMatcher(self._stops)
            else:
                text = self._stop_matcher.push(piece)
            if text:
                shown.append(text)
            if self._stop_matcher.matched:
                break
            if isinstance(piece, CallPiece):
                shown.append(piece)
        return shown


def _call_reader(prepared: Prepared) -> CallReader | None:
    calls = prepared.calls
    if calls is None:
        return None
    names = frozenset(tool.name for tool in calls.tools)
    return CallReader(calls.call_format, names, takes_many=calls.takes_many)
