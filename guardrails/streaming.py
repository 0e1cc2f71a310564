"""What of an answer may leave while it is still being written.

Each choice's answer, reasoning and tool call arguments are searched each on its own, arguments for
what their JSON says. Text waits only while its end can still become a denied word. When one is
found, nothing of it leaves, the choice is over with `content_filter`, and nothing of that choice
follows. What leaves does not depend on how the engine cut the text into pieces.

Logprobs name tokens, so they leave only when all text of their piece has left.
"""

from collections import deque
from collections.abc import AsyncIterator, Iterator

from msgspec import Struct
from msgspec.structs import replace

from appliance.generation import (
    ChoiceFinished,
    ChosenLogprob,
    Failed,
    Finished,
    FinishReason,
    GenerationEvent,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from guardrails.detectors.denylist import Search
from guardrails.json_text import JsonText
from guardrails.screen import Screen
from guardrails.verdict import Action


def screen_output(
    events: AsyncIterator[GenerationEvent], screen: Screen, num_choices: int = 1
) -> AsyncIterator[GenerationEvent]:
    """The same events without denied words; `events` itself where nothing is denied.

    Once all `num_choices` have ended and one of them here, `events` is closed, which stops the
    engine: its ending, and what that says was used, is not waited for.
    """
    return events if screen.is_empty else _screened(events, screen, num_choices)


async def _screened(
    events: AsyncIterator[GenerationEvent], screen: Screen, num_choices: int
) -> AsyncIterator[GenerationEvent]:
    answer = _Answer(screen, num_choices)
    try:
        async for event in events:
            for screened in answer.take(event):
                yield screened
            if answer.is_cut_short:
                break
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()
    if answer.is_cut_short:
        yield Finished(usage=Usage())


class _Answer:
    """All choices of one answer."""

    def __init__(self, screen: Screen, num_choices: int) -> None:
        self._screen = screen
        self._num_open = num_choices
        # The engine's own view: it knows nothing of the choices that were blocked here.
        self._num_running = num_choices
        self._choices: dict[int, _Choice] = {}
        self._blocked: set[int] = set()

    @property
    def is_cut_short(self) -> bool:
        """Every choice is over, and the engine is still at work on one that was blocked."""
        return self._num_open == 0 and self._num_running > 0

    def take(self, event: GenerationEvent) -> Iterator[GenerationEvent]:
        """What may leave after this event."""
        match event:
            case Finished() | Failed():
                for choice in self._choices.values():
                    yield from choice.finish()
                yield event
            case ChoiceFinished():
                self._num_running -= 1
                if event.index not in self._blocked:
                    yield from self._finish(event)
            case TextDelta() | ToolCallDelta():
                if event.index not in self._blocked:
                    yield from self._pass(event)

    def _pass(self, event: TextDelta | ToolCallDelta) -> Iterator[GenerationEvent]:
        choice = self._choices.get(event.index)
        if choice is None:
            choice = self._choices[event.index] = _Choice(self._screen)
        yield from choice.take(event)
        if choice.is_hit:
            yield self._block(event.index)

    def _finish(self, event: ChoiceFinished) -> Iterator[GenerationEvent]:
        choice = self._choices.get(event.index)
        if choice is not None:
            yield from choice.finish()
        if choice is not None and choice.is_hit:
            yield self._block(event.index)
        else:
            self._choices.pop(event.index, None)
            self._num_open -= 1
            yield event

    def _block(self, index: int) -> ChoiceFinished:
        del self._choices[index]
        self._blocked.add(index)
        self._num_open -= 1
        return ChoiceFinished(index=index, finish_reason=FinishReason.CONTENT_FILTER)


class _Choice:
    """The texts and the tool calls of one choice."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._texts: dict[str, _TextPieces] = {}
        self._calls: dict[int, _ArgumentPieces] = {}
        self.is_hit = False

    def take(self, event: GenerationEvent) -> Iterator[GenerationEvent]:
        """What may leave after this piece."""
        if isinstance(event, TextDelta):
            text = self._texts.setdefault(event.channel, _TextPieces(self._screen))
            yield from text.take(event)
            self.is_hit = text.search.is_hit
        elif isinstance(event, ToolCallDelta):
            call = self._calls.setdefault(event.call_index, _ArgumentPieces(self._screen))
            yield from call.take(event)
            self.is_hit = call.search.is_hit

    def finish(self) -> Iterator[GenerationEvent]:
        """What may leave after the last piece."""
        parts: tuple[_TextPieces | _ArgumentPieces, ...]
        parts = (*self._texts.values(), *self._calls.values())
        for part in parts:
            if not self.is_hit:
                yield from part.finish()
                self.is_hit = part.search.is_hit


class _Waiting(Struct):
    """A piece of text some of which has not left yet."""

    delta: TextDelta
    num_chars: int


class _TextPieces:
    """One text of a choice, in pieces that leave as far as they may."""

    def __init__(self, screen: Screen) -> None:
        self.search: Search = screen.search()
        self._screen = screen
        self._waiting: deque[_Waiting] = deque()

    def take(self, delta: TextDelta) -> Iterator[TextDelta]:
        """What may leave after this piece."""
        delta = self._without_denied_alternatives(delta)
        if self._waiting and not self._waiting[-1].delta.text:
            # The text of these tokens was still to come: their logprobs wait for it.
            delta = _joined(self._waiting.pop().delta, delta)
        self._waiting.append(_Waiting(delta, len(delta.text)))
        yield from self._let_go(self.search.feed(delta.text))

    def finish(self) -> Iterator[TextDelta]:
        """What may leave after the last piece."""
        yield from self._let_go(self.search.finish())
        if self._waiting and not self.search.is_hit:
            yield self._waiting.pop().delta

    def _let_go(self, free: str) -> Iterator[TextDelta]:
        while free:
            first = self._waiting[0]
            text, free = free[: first.num_chars], free[first.num_chars :]
            first.num_chars -= len(text)
            if first.num_chars:
                # The rest waits, and with it the count and the logprobs of the whole piece.
                yield replace(first.delta, text=text, num_tokens=0, logprobs=())
            else:
                self._waiting.popleft()
                yield replace(first.delta, text=text)

    def _without_denied_alternatives(self, delta: TextDelta) -> TextDelta:
        """A token that was not chosen can be a denied word by itself."""
        if not any(logprob.top for logprob in delta.logprobs):
            return delta
        return replace(delta, logprobs=tuple(map(self._cleared, delta.logprobs)))

    def _cleared(self, logprob: ChosenLogprob) -> ChosenLogprob:
        allowed = (t for t in logprob.top if self._screen.check(t.token).action is Action.ALLOW)
        return replace(logprob, top=tuple(allowed))


class _ArgumentPieces:
    """The arguments of one tool call: searched for what the JSON says, told as it was written."""

    def __init__(self, screen: Screen) -> None:
        self.search: Search = screen.search()
        self._json = JsonText()
        self._last: ToolCallDelta | None = None

    def take(self, delta: ToolCallDelta) -> Iterator[ToolCallDelta]:
        self._last = delta
        free = self._json.release(len(self.search.feed(self._json.read(delta.arguments))))
        if free or delta.id or delta.name:
            yield replace(delta, arguments=free)

    def finish(self) -> Iterator[ToolCallDelta]:
        said = self.search.feed(self._json.finish()) + self.search.finish()
        free = self._json.release(len(said))
        if free and self._last is not None:
            yield replace(self._last, id="", name="", arguments=free)


def _joined(first: TextDelta, second: TextDelta) -> TextDelta:
    return replace(
        second,
        num_tokens=first.num_tokens + second.num_tokens,
        logprobs=first.logprobs + second.logprobs,
    )
