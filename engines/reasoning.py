"""What a model thinks before it answers, `<think>...</think>`, told apart from the answer."""

from typing import Final, Literal, TypeAlias

THINK_START: Final = "<think>"
THINK_END: Final = "</think>"

# How an answer may begin: with no think block, with one, or inside one that the prompt opened.
Thinking: TypeAlias = Literal["never", "maybe", "opened"]


class ReasoningReader:
    """Reads one answer: thoughts until the block ends, then content for good.

    Only the start of an answer can open a block: later markers are content. Space at both ends of
    the thoughts and before the content belongs to neither.
    """

    def __init__(self, thinking: Thinking) -> None:
        self._stage = {"never": "content", "maybe": "start", "opened": "thoughts"}[thinking]
        self._held = ""
        self._has_said = False

    def push(self, text: str) -> tuple[str, str]:
        """The thoughts and the content that `text` completes."""
        if self._stage == "content":
            return "", text
        self._held += text
        if self._stage == "start" and not self._read_start():
            return "", ""
        thoughts = self._read_thoughts() if self._stage == "thoughts" else ""
        return thoughts, self._read_content()

    def finish(self, *, was_cut: bool = False) -> tuple[str, str]:
        """What was held back, when no text follows; half a marker only where the model ended it."""
        held, self._held = self._held, ""
        if self._stage == "thoughts":
            num_markup = _num_held(held) if was_cut else 0
            return held[: len(held) - num_markup].rstrip(), ""
        return "", held if self._stage == "start" and not was_cut else ""

    def _read_start(self) -> bool:
        """Whether it is settled if the answer opens with a think block."""
        start = self._held.lstrip()
        if start.startswith(THINK_START):
            self._stage = "thoughts"
            self._held = start[len(THINK_START) :]
        elif not THINK_START.startswith(start):
            self._stage = "content"
        return self._stage != "start"

    def _read_thoughts(self) -> str:
        thoughts, end, rest = self._held.partition(THINK_END)
        if end:
            self._stage, self._held = "space", rest
            return self._trim(thoughts).rstrip()
        kept = len(thoughts[: len(thoughts) - _num_held(thoughts)].rstrip())
        self._held = thoughts[kept:]
        return self._trim(thoughts[:kept])

    def _trim(self, thoughts: str) -> str:
        trimmed = thoughts if self._has_said else thoughts.lstrip()
        self._has_said = self._has_said or bool(trimmed)
        return trimmed

    def _read_content(self) -> str:
        if self._stage == "space":
            self._held = self._held.lstrip()
            if self._held:
                self._stage = "content"
        if self._stage != "content":
            return ""
        content, self._held = self._held, ""
        return content


def _num_held(text: str) -> int:
    """The length of the longest end of `text` that may be the start of the end marker."""
    return max(n for n in range(len(THINK_END)) if text.endswith(THINK_END[:n]))
