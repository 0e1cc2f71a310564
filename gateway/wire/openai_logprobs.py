"""Logprobs of tokens as OpenAI's chat completions and responses write them."""

import math
from typing import Final

from msgspec import Struct

from appliance.generation import ChosenLogprob, TokenLogprob

# OpenAI's stand-in for the logprob of an impossible token, where JSON has no -Infinity.
_LEAST_LOGPROB: Final = -9999.0


class WireLogprob(Struct, frozen=True):
    """One token's logprob; `bytes` are its UTF-8 bytes, which alone may be no whole character."""

    token: str
    logprob: float
    bytes: list[int]


class WireChosenLogprob(WireLogprob, frozen=True):
    """The chosen token and its rivals."""

    top_logprobs: list[WireLogprob]


def to_chosen(logprob: ChosenLogprob) -> WireChosenLogprob:
    """One position of an answer."""
    chosen = _to_logprob(logprob.chosen)
    top = [_to_logprob(rival) for rival in logprob.top]
    return WireChosenLogprob(chosen.token, chosen.logprob, chosen.bytes, top)


def finite(logprob: float) -> float:
    """The same logprob, or OpenAI's least one where it is -inf or not a number."""
    return _LEAST_LOGPROB if math.isnan(logprob) else max(_LEAST_LOGPROB, logprob)


def _to_logprob(token: TokenLogprob) -> WireLogprob:
    return WireLogprob(token.token, finite(token.logprob), list(token.token_bytes))
