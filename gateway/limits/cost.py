"""The most tokens a request can use, told before its prompt is tokenised.

A prompt is taken as a token for every three bytes of UTF-8 and eight for the frame around each
message. English needs about a token for four bytes and Turkish one for three, so the estimate
errs on the high side; settling puts it right. Every choice is taken to run to its `max_tokens`.
"""

from typing import Final

from appliance.generation import ChatPrompt, Prompt, TextPrompt

BYTES_PER_TOKEN: Final = 3
MESSAGE_TOKENS: Final = 8


def estimate_prompt_tokens(prompts: tuple[Prompt, ...]) -> int:
    """About how many tokens the prompts hold, rather too many than too few."""
    return sum(map(_estimate, prompts))


def _estimate(prompt: Prompt) -> int:
    if isinstance(prompt, ChatPrompt):
        texts = [
            text
            for message in prompt.messages
            for text in (message.content or "", *(call.arguments for call in message.tool_calls))
        ]
        return len(prompt.messages) * MESSAGE_TOKENS + sum(map(_tokens_of, texts))
    if isinstance(prompt, TextPrompt):
        return _tokens_of(prompt.text)
    return len(prompt.token_ids)


def _tokens_of(text: str) -> int:
    return -(-len(text.encode("utf-8")) // BYTES_PER_TOKEN)
