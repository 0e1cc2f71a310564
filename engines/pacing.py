"""How many prompt tokens a step takes while streams run: as many as its time allows.

A stream's next token waits for the whole step. So the step is given a time, not a number of
tokens, and what a prompt token and a decode cost on this machine is learnt from the steps taken.
(Chunked prefill: Agrawal et al., "Sarathi-Serve", 2024, which sizes chunks by a latency target.)
"""

from collections import deque
from statistics import median
from typing import Final

from engines.runner import StepPlan

# However long the decodes of many streams take, prompts get as much time again: a prompt that
# comes in at a crawl holds up its own caller, and the place that it takes.
_LEAST_PROMPT_SHARE: Final = 0.5
# However slow the machine, a prompt moves on by so many.
_LEAST_TOKENS: Final = 16
# Before anything is known: small enough for a slow machine, and one step corrects it.
_FIRST_TOKENS: Final = 64
# The middle one of the latest: any one step may have been disturbed.
_NUM_LATEST: Final = 5


class PromptPace:
    """Learns what steps cost; `step_s` is how long one may take while streams run."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._decode_s: deque[float] = deque(maxlen=_NUM_LATEST)
        self._token_s: deque[float] = deque(maxlen=_NUM_LATEST)

    @property
    def num_tokens(self) -> int:
        """Tokens of prompts for the next step."""
        if not self._token_s:
            return _FIRST_TOKENS
        decode_s = median(self._decode_s) if self._decode_s else 0.0
        least_s = decode_s * _LEAST_PROMPT_SHARE / (1.0 - _LEAST_PROMPT_SHARE)
        prompt_s = max(self._step_s - decode_s, least_s)
        return max(_LEAST_TOKENS, int(prompt_s / median(self._token_s)))

    def observe(self, plan: StepPlan, seconds: float) -> None:
        """Take in how long a step took; one with drafts tells nothing of either."""
        if any(chunk.drafts for chunk in plan.chunks):
            return
        num_prompt_tokens = sum(chunk.length for chunk in plan.chunks if chunk.length > 1)
        if not num_prompt_tokens:
            self._decode_s.append(seconds)
            return
        has_decodes = any(chunk.length == 1 for chunk in plan.chunks)
        if num_prompt_tokens < _LEAST_TOKENS or (has_decodes and not self._decode_s):
            return  # It cannot be told which part of the time was the prompt's.
        decode_s = median(self._decode_s) if has_decodes else 0.0
        if seconds > decode_s:
            self._token_s.append((seconds - decode_s) / num_prompt_tokens)
