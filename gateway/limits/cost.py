"""The most tokens a request can use, told before its prompt is tokenised.

A prompt is taken as a token for every three bytes of UTF-8 and eight for the frame around each
message. English needs about a token for four bytes and Turkish one for three, so the estimate
errs on the high side; settling puts it right. Every choice is taken to run to its `max_tokens`,
or, where the client sets none, to the end of the model's context.
"""

from typing import Final

from appliance.generation import ChatPrompt, Prompt, TokenPrompt
from gateway.prompt_text import texts_of
from gateway.wire.call import Decoded

BYTES_PER_TOKEN: Final = 3
MESSAGE_TOKENS: Final = 8


def worst_case_tokens(decoded: Decoded, context_tokens: int, limit: int) -> int:
    """Prompt and all choices at their longest.

    A request that sets no `max_tokens` asks for no more than the whole `limit`: it runs alone in
    its minute, and what it uses beyond is charged when it is settled.
    """
    prompt = estimate_prompt_tokens(decoded.prompts)
    num_choices = len(decoded.prompts) * decoded.n
    room = max(1, context_tokens - prompt)
    if decoded.stopping.max_tokens is None:
        return max(prompt + 1, min(prompt + num_choices * room, limit))
    return prompt + num_choices * min(decoded.stopping.max_tokens, room)


def estimate_prompt_tokens(prompts: tuple[Prompt, ...]) -> int:
    """About how many tokens the prompts hold, rather too many than too few."""
    return sum(map(_estimate, prompts))


def _estimate(prompt: Prompt) -> int:
    if isinstance(prompt, TokenPrompt):
        return len(prompt.token_ids)
    num_messages = len(prompt.messages) if isinstance(prompt, ChatPrompt) else 0
    return num_messages * MESSAGE_TOKENS + sum(map(_tokens_of, texts_of(prompt)))


def _tokens_of(text: str) -> int:
    return -(-len(text.encode("utf-8")) // BYTES_PER_TOKEN)
