"""What the guardrails are shown of a prompt, and what a caller is told of their verdict."""

import asyncio
from typing import Final

from appliance.errors import RequestError
from appliance.generation import Prompt, TokenPrompt
from gateway.prompt_text import texts_of
from guardrails.screen import Screen
from guardrails.verdict import Action, Verdict

# Judging takes about a microsecond for two characters; beyond this it leaves the event loop.
_LONG_CHARS: Final = 16_384


async def check_prompts(screen: Screen, prompts: tuple[Prompt, ...]) -> None:
    """Raise RequestError 400 when a prompt may not enter, or cannot be judged."""
    if screen.is_empty:
        return
    for prompt in prompts:
        if isinstance(prompt, TokenPrompt):
            raise _refuse("guardrails.unreadable", "token ids cannot be screened; send text")
        for text in texts_of(prompt):
            if (await _judge(screen, text)).action is Action.BLOCK:
                raise _refuse("guardrails.blocked", "the prompt holds what may not enter this box")


async def _judge(screen: Screen, text: str) -> Verdict:
    if len(text) <= _LONG_CHARS:
        return screen.check(text)
    return await asyncio.to_thread(screen.check, text)


def _refuse(code: str, message: str) -> RequestError:
    return RequestError(code, message, status=400, should_retry=False)
