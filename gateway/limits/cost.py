"""The most tokens a request can use, told before its prompt is tokenised.

A prompt is taken as a token for every three bytes of UTF-8 and eight for the frame around each
message. English needs about a token for four bytes and Turkish one for three, so the estimate
errs on the high side; settling puts it right. Every choice is taken to run to its `max_tokens`,
or, where the client sets none, to the end of the model's context.
"""

from typing import Final

from appliance.generation import ChatPrompt, Prompt, TokenPrompt
from gateway.prompt_text import texts_in
from gateway.wire.call import Asked

BYTES_PER_TOKEN: Final = 3
MESSAGE_TOKENS: Final = 8


def worst_case_tokens(asked: Asked, context_tokens: int, limit: int) -> int:
    """Prompts and all choices at their longest.

    A request that sets no `max_tokens` asks for no more than the whole `limit`: it runs alone in
    its minute, and what it uses beyond is charged when it is settled.
    """
    prompt = estimate_prompt_tokens(asked)
    room = max(1, context_tokens - prompt)
    if asked.max_tokens is None:
        return max(prompt + 1, min(prompt + asked.num_choices * room, limit))
    return prompt + asked.num_choices * min(asked.max_tokens, room)


def estimate_prompt_tokens(asked: Asked) -> int:
    """About how many tokens the engine is given to read, rather too many than too few."""
    return sum(map(_frame_tokens, asked.prompts)) + sum(map(_tokens_of, texts_in(asked)))


def _frame_tokens(prompt: Prompt) -> int:
    if isinstance(prompt, TokenPrompt):
        return len(prompt.token_ids)
    return len(prompt.messages) * MESSAGE_TOKENS if isinstance(prompt, ChatPrompt) else 0


def _tokens_of(text: str) -> int:
    return -(-len(text.encode("utf-8")) // BYTES_PER_TOKEN)
