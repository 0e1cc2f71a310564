"""One request inside an engine, from its arrival to its ending: its choices, usage and timings."""

import secrets
from hashlib import blake2b
from typing import Final

from appliance.errors import RequestError
from appliance.generation import GenerationRequest, Timings, Usage
from engines.choice import Choice
from engines.prepared import Prepared
from engines.runner import Tokenizer
from engines.sequence import Sequence

_SEED_BYTES: Final = 8


class LiveRequest:
    """A request with no choices yet while its prompts are being tokenised."""

    def __init__(self, request: GenerationRequest, arrived_at: float) -> None:
        self.request = request
        self.arrived_at = arrived_at
        self.choices: list[Choice] = []
        self.num_open = 0

    def open(self, prompts: list[Prepared], tokenizer: Tokenizer, context_tokens: int) -> None:
        """Make the choices, the first of each prompt leading the others.

        Raises RequestError `request.context_length_exceeded` when a prompt leaves no room for a
        single new token.
        """
        for prepared in prompts:
            _check_length(len(prepared.token_ids), context_tokens)
        seed = self.request.sampling.seed
        if seed is None:
            seed = secrets.randbits(8 * _SEED_BYTES)
        for prepared in prompts:
            leader = None
            for sample_index in range(self.request.n):
                sequence = self._sequence(prepared, context_tokens, leader)
                sequence.seed = choice_seed(seed, sample_index)
                leader = leader or sequence
                choice = Choice(sequence, tokenizer, self.request.stopping, prepared)
                self.choices.append(choice)
        self.num_open = len(self.choices)

    def usage(self) -> Usage:
        """What was consumed so far; each prompt counts once, with its first choice."""
        sequences = [choice.sequence for choice in self.choices]
        leaders = [sequence for sequence in sequences if sequence.leader is None]
        return Usage(
            prompt_tokens=sum(sequence.num_prompt_tokens for sequence in leaders),
            completion_tokens=sum(sequence.num_output_tokens for sequence in sequences),
            cached_tokens=sum(sequence.num_cached for sequence in leaders),
        )

    def timings(self, now: float) -> Timings:
        """Waiting until the first choice ran, its prompt until the first token, the rest."""
        sequences = [choice.sequence for choice in self.choices]
        scheduled_at = min((s.scheduled_at for s in sequences if s.scheduled_at), default=now)
        first_token_at = min((s.first_token_at for s in sequences if s.first_token_at), default=now)
        return Timings(
            queue_s=scheduled_at - self.arrived_at,
            prefill_s=first_token_at - scheduled_at,
            decode_s=now - first_token_at,
        )

    def _sequence(
        self, prepared: Prepared, context_tokens: int, leader: Sequence | None
    ) -> Sequence:
        num_prompt_tokens = len(prepared.token_ids)
        room = context_tokens - num_prompt_tokens
        max_tokens = self.request.stopping.max_tokens
        sequence = Sequence(
            request_id=self.request.id,
            index=len(self.choices),
            num_prompt_tokens=num_prompt_tokens,
            token_ids=prepared.token_ids.copy(),
            max_tokens=room if max_tokens is None else min(max_tokens, room),
            sampling=self.request.sampling,
            seed=0,
            cache_salt=self.request.cache_salt,
            priority=self.request.priority,
            arrived_at=self.arrived_at,
            leader=leader,
            constraint=prepared.grammar.begin() if prepared.grammar else None,
            withheld=prepared.withheld,
        )
        if self.request.scores_prompt:
            _score_prompt(sequence)
        return sequence


def _score_prompt(sequence: Sequence) -> None:
    """Have the prompt's logprobs computed: once for its choices, and from nobody's cache.

    A salt that no other prompt has keeps the prefix cache from answering in place of the model.
    """
    leader = sequence.leader
    sequence.prompt_scores = [] if leader is None else leader.prompt_scores
    sequence.cache_salt = secrets.token_bytes() if leader is None else leader.cache_salt


def choice_seed(seed: int, sample_index: int) -> int:
    """The seed of one of `n` choices: the request's own for the first, so that asking for more
    choices does not change it, and one derived from it for each other."""
    if sample_index == 0:
        return seed
    digest = blake2b(f"{seed}:{sample_index}".encode(), digest_size=_SEED_BYTES)
    return int.from_bytes(digest.digest(), "big")


def _check_length(num_tokens: int, context_tokens: int) -> None:
    if num_tokens >= context_tokens:
        raise RequestError(
            "request.context_length_exceeded",
            f"the prompt has {num_tokens} tokens; the context of this model holds "
            f"{context_tokens}, of which at least one is for the answer",
            status=400,
            param="messages",
        )
