"""One choice being generated: the mutable record that scheduler and worker share.

A sequence is owned by one worker loop and touched by no other thread.
"""

from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from appliance.generation import FinishReason, SamplingParams

if TYPE_CHECKING:
    from engines.constraint import Constraint
    from engines.drafting import Drafter
    from engines.runner import Sampled


class SequenceState(Enum):
    """Where a sequence stands. Legal moves: WAITING -> RUNNING -> FINISHED, RUNNING -> WAITING
    (pre-empted), WAITING -> FINISHED (cancelled or refused)."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class Withheld(Struct, frozen=True, kw_only=True):
    """Tokens that are not to be chosen before the output has `until_tokens` of them."""

    token_ids: tuple[int, ...]
    until_tokens: int


class Sequence(Struct, kw_only=True, eq=False):
    """Tokens of one choice and how far the engine has come with them.

    `token_ids` is prompt then output. `num_computed` tokens have their keys and values in the
    cache; the step loop's only job is to bring it up to `len(token_ids)`, and each time it gets
    there a new token is sampled and appended. `kv` belongs to the runner's KvManager alone.
    `leader` is the first choice of the same prompt (None for that one itself); `num_bypasses` is
    how often others were admitted past it while it did not fit. While it waits until another has
    computed the first `num_awaited` tokens of its prompt, that one is `awaited`.

    `constraint` and `withheld` narrow which tokens may follow (`engines.restrictions`). Where
    `prompt_scores` is a list, the runner puts the logprobs of every prompt token but the first
    into it, in order, chunk by chunk. `drafter` guesses its next tokens where guesses may pay.
    `block_digests` name its full blocks where a KvManager keeps blocks (`engines.pytorch`).
    """

    request_id: str
    index: int
    num_prompt_tokens: int
    token_ids: list[int]
    max_tokens: int
    sampling: SamplingParams
    seed: int
    cache_salt: bytes = b""
    priority: int = 0
    arrived_at: float = 0.0

    state: SequenceState = SequenceState.WAITING
    num_computed: int = 0
    num_cached: int = 0
    num_preemptions: int = 0
    scheduled_at: float = 0.0
    first_token_at: float = 0.0
    finish_reason: FinishReason | None = None
    leader: "Sequence | None" = None
    kv: Any = None
    num_bypasses: int = 0
    constraint: "Constraint | None" = None
    withheld: tuple[Withheld, ...] = ()
    prompt_scores: "list[Sampled] | None" = None
    drafter: "Drafter | None" = None
    awaited: "Sequence | None" = None
    num_awaited: int = 0
    block_digests: list[bytes] | None = None

    @property
    def num_output_tokens(self) -> int:
        """How many tokens have been sampled."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_uncomputed(self) -> int:
        """How many known tokens the cache does not hold yet."""
        return len(self.token_ids) - self.num_computed

    @property
    def is_prefilling(self) -> bool:
        """More than the last token is uncomputed: a prompt, or recompute after pre-emption."""
        return self.num_uncomputed > 1
