"""What the guardrails are shown of a request, and what a caller is told of their verdict."""

from functools import partial
from typing import Final

from appliance.errors import RequestError
from appliance.generation import TokenPrompt
from gateway.prompt_text import texts_in
from gateway.threads import compute
from gateway.wire.call import Asked
from guardrails.json_text import unescape
from guardrails.screen import Screen
from guardrails.verdict import Action, Verdict

# Judging takes about a microsecond for two characters.
_LONG_CHARS: Final = 16_384


async def check_input(screen: Screen, asked: Asked) -> None:
    """Raise RequestError 400 when a request may not enter, or cannot be judged."""
    if screen.is_empty:
        return
    if any(isinstance(prompt, TokenPrompt) for prompt in asked.prompts):
        raise _refuse("guardrails.unreadable", "token ids cannot be screened; send text")
    for text in texts_in(asked):
        verdict = await compute(partial(_judge, screen), text, _LONG_CHARS)
        if verdict.action is Action.BLOCK:
            raise _refuse("guardrails.blocked", "the prompt holds what may not enter this box")


def _judge(screen: Screen, text: str) -> Verdict:
    """The verdict on a text, also behind JSON's escapes: they hide nothing from a model."""
    verdict = screen.check(text)
    if verdict.action is Action.BLOCK or "\\" not in text:
        return verdict
    return screen.check(unescape(text))


def _refuse(code: str, message: str) -> RequestError:
    return RequestError(code, message, status=400, should_retry=False)
