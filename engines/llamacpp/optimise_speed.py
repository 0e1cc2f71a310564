"""How fast a format is: one round of decoding many sequences, and of reading a prompt."""

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

from msgspec import Struct

from appliance.optimise_records import Speed
from engines.llamacpp.optimise_decoder import Decoder, Token, a_sequence, decoding

_PROMPT_TOKENS: Final = 32
_LONG_PROMPT_TOKENS: Final = 240


class Round(Struct, frozen=True, kw_only=True):
    """Tokens a second in one round. `decode` is by the number of sequences at a time."""

    decode: dict[int, float]
    prompt: float


def measure_round(path: Path, *, counts: Sequence[int], num_tokens: int, num_threads: int) -> Round:
    """Load the file and measure once; what comes first warms up what is timed after it."""
    with decoding(path, num_sequences=max(counts), num_threads=num_threads) as decoder:
        decode = {count: _decode_rate(decoder, count, num_tokens) for count in counts}
        return Round(decode=decode, prompt=_prompt_rate(decoder))


def _decode_rate(decoder: Decoder, count: int, num_tokens: int) -> float:
    decoder.forget()
    for sequence in range(count):
        decoder.compute(a_sequence(_prompt(decoder, _PROMPT_TOKENS), sequence=sequence))
    token_ids = _prompt(decoder, count)
    started = time.perf_counter()
    for position in range(_PROMPT_TOKENS, _PROMPT_TOKENS + num_tokens):
        rows = decoder.compute(
            [
                Token(token_id=token_id, position=position, sequence=i, wants_logits=True)
                for i, token_id in enumerate(token_ids)
            ]
        )
        token_ids = rows.argmax(axis=1).tolist()
    return count * num_tokens / (time.perf_counter() - started)


def _prompt_rate(decoder: Decoder) -> float:
    decoder.forget()
    token_ids = _prompt(decoder, _LONG_PROMPT_TOKENS)
    started = time.perf_counter()
    decoder.compute(a_sequence(token_ids, num_logits=1))
    return len(token_ids) / (time.perf_counter() - started)


def _prompt(decoder: Decoder, num_tokens: int) -> list[int]:
    """Some tokens: which ones does not matter to the time they take."""
    size = decoder.tokenizer.vocabulary_size
    return [(100 + i) % size for i in range(num_tokens)]


def speed_of(rates: Sequence[float]) -> Speed:
    """The median of several rounds, with the range."""
    return Speed(median=median(rates), lowest=min(rates), highest=max(rates))
