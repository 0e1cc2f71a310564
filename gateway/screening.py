"""Where the guardrails stand in the walk: what they are shown, and what a caller is told."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Final

from appliance.errors import RequestError
from appliance.generation import ChatPrompt, GenerationEvent, Prompt, TextPrompt, TokenPrompt
from guardrails.screen import Screen
from guardrails.verdict import Action

# Judging takes about a microsecond for two characters; beyond this it leaves the event loop.
_LONG_CHARS: Final = 16_384


async def check_prompts(screen: Screen, prompts: tuple[Prompt, ...]) -> None:
    """Raise RequestError 400 when a prompt may not enter."""
    if screen.is_empty:
        return
    if any(isinstance(prompt, TokenPrompt) for prompt in prompts):
        raise RequestError(
            "guardrails.unreadable",
            "token ids cannot be screened; send text",
            status=400,
            param="prompt",
        )
    for text in _texts_of(prompts):
        if len(text) <= _LONG_CHARS:
            verdict = screen.check(text)
        else:
            verdict = await asyncio.to_thread(screen.check, text)
        if verdict.action is Action.BLOCK:
            raise RequestError(
                "guardrails.blocked",
                "the prompt contains what this box does not let in",
                status=400,
                should_retry=False,
            )


def screen_answer(
    screen: Screen, events: AsyncIterator[GenerationEvent]
) -> AsyncIterator[GenerationEvent]:
    """The events with what may not leave taken out."""
    return events


def _texts_of(prompts: tuple[Prompt, ...]) -> Iterator[str]:
    for prompt in prompts:
        match prompt:
            case TextPrompt(text=text):
                yield text
            case ChatPrompt(messages=messages):
                for message in messages:
                    yield from filter(None, (message.name, message.content))
                    for call in message.tool_calls:
                        yield from (call.name, call.arguments)
            case _:
                pass
