"""What an engine must be able to do to be driven by the scheduler, and the names engines go by.

A runner owns one model on one device: its tokenizer, its KV memory and its forward pass. It knows
nothing of requests, queues, text or sockets. Adding an engine means adding a folder with a runner
and one line in `RUNNERS`.
"""

import importlib
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from msgspec import Struct

from appliance.engine_choice import install_line, is_installed
from appliance.errors import EngineError
from engines.protocol import ModelFacts
from engines.sequence import Sequence

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class RunnerOptions(Struct, frozen=True, kw_only=True):
    """How a runner shall be started. 0 means: choose by the machine and the model.

    `kv_room_bytes` is the memory that keys and values may take, and `prefix_bytes` (0: none) what
    computed prefixes may take beside them. A `deterministic` runner is batch-invariant
    (`engines.batch_invariance`), or does not start.
    """

    model: str
    path: Path
    context_tokens: int = 0
    num_slots: int = 0
    num_threads: int = 0
    step_tokens: int = 0
    kv_room_bytes: int = 0
    prefix_bytes: int = 0
    deterministic: bool = False


class Chunk(Struct, frozen=True, kw_only=True):
    """A run of one sequence's tokens to be computed in this step.

    Computes `token_ids[start : start + length]`. When that reaches the last known token,
    `samples` is true and the step answers with one new token for this sequence.

    `drafts` are guesses of the tokens that follow. They are computed after the known ones, and the
    answer is then a tuple: as many tokens as `engines.verifying` takes, at least one. The runner
    forgets what it computed of the others. Only where its facts say that it `verifies_drafts`.
    """

    sequence: Sequence
    start: int
    length: int
    samples: bool
    drafts: tuple[int, ...] = ()


class StepPlan(Struct, frozen=True, kw_only=True):
    """What one step computes, decodes (length 1) before prefill chunks."""

    chunks: tuple[Chunk, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens computed by this step."""
        return sum(chunk.length + len(chunk.drafts) for chunk in self.chunks)


class Logprob(Struct, frozen=True, kw_only=True):
    """A token id and its natural-log probability."""

    token_id: int
    logprob: float


class Sampled(Struct, frozen=True, kw_only=True):
    """The token chosen for a sequence, with logprobs where its SamplingParams ask for them."""

    token_id: int
    logprob: Logprob | None = None
    top: tuple[Logprob, ...] = ()


class RowError(Struct, frozen=True, kw_only=True):
    """This sequence's row failed (for example: not a number); the others are fine."""

    code: str
    message: str


# Of a chunk: nothing where it does not sample, a run of tokens where it has drafts.
Answer: TypeAlias = Sampled | tuple[Sampled, ...] | RowError | None


class OutOfKvError(Exception):
    """The device had no room for the step; nothing was computed. Pre-empt and retry."""


class Tokenizer(Protocol):
    """Text to token ids and back, exactly as the model's own vocabulary has it."""

    @property
    def vocabulary_size(self) -> int: ...

    @property
    def chat_template(self) -> str | None:
        """The model's Jinja chat template; None when it has none."""

    @property
    def bos_text(self) -> str: ...

    @property
    def eos_text(self) -> str: ...

    @property
    def adds_bos(self) -> bool:
        """Whether a prompt starts with BOS."""

    @property
    def closing_ids(self) -> tuple[int, ...]:
        """The tokens that end a text which is to be embedded, where the model wants any."""

    @property
    def control_markers(self) -> tuple[str, ...]:
        """The texts of all control tokens, longest first."""

    def encode(self, text: str, *, markers: bool) -> list[int]:
        """Token ids of `text`, no BOS added. With `markers`, texts of control tokens become them.

        Safe to call from another thread than the step loop's.
        """

    def encode_parts(self, text: str, *, markers: bool) -> Iterator[list[int]]:
        """The same ids a part at a time, so that a caller can give up in between."""

    def piece(self, token_id: int) -> bytes:
        """The bytes that a token stands for; empty for a control token."""

    def ends_generation(self, token_id: int) -> bool:
        """Whether this token means: the answer is complete."""


class KvManager(Protocol):
    """Who keeps whose keys and values. Pure bookkeeping: the runner carries out what it decides.

    What a released sequence had computed stays reusable (evictable) for prompts of the same salt.
    """

    @property
    def total_tokens(self) -> int: ...

    @property
    def used_tokens(self) -> int:
        """Tokens held by running sequences."""

    @property
    def cached_tokens(self) -> int:
        """Tokens held by nobody, kept for reuse."""

    @property
    def saved_tokens(self) -> int:
        """Tokens kept for reuse outside of where they could be computed on."""

    def admit(self, sequence: Sequence, *, spare_tokens: int = 0) -> bool:
        """Give a waiting sequence a place for all its known tokens, or say no and change nothing.

        Where running ones share one memory, `spare_tokens` of it are to be left for them to grow.
        On success `sequence.num_computed` (and, the first time, `num_cached`) is the length of the
        prefix found in the cache, at most `len(token_ids) - 1`.
        """

    def grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Make sure a running sequence can hold `num_tokens` in all; False: no room now."""

    def release(self, sequence: Sequence, *, reusable: bool = True) -> None:
        """Take a running sequence's place back; with `reusable` its computed tokens stay cached."""


class Embedder(Protocol):
    """The part of a runner that turns texts into vectors. Called where `execute` is."""

    @property
    def max_tokens(self) -> int:
        """Most tokens of one batch, and so of one input."""

    @property
    def max_inputs(self) -> int:
        """Most inputs of one batch."""

    def embed(self, inputs: Seq[list[int]]) -> "NDArray[np.float32]":
        """One row an input, of any length but `facts.embedding_size` wide.

        Raises EngineError, and can go on after it.
        """


class Runner(Protocol):
    """One model on one device."""

    @property
    def facts(self) -> ModelFacts: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def kv(self) -> KvManager: ...

    @property
    def embedder(self) -> Embedder | None:
        """What embeds texts; None for a model that does not."""

    @property
    def step_tokens(self) -> int:
        """Most tokens one step may compute."""

    def execute(self, plan: StepPlan) -> Seq[Answer]:
        """Compute the plan; answer chunk by chunk (None where a chunk does not sample).

        Raises OutOfKvError with nothing computed. Any other exception ends the replica.
        """

    def close(self) -> None:
        """Give memory and device back."""


Start: TypeAlias = Callable[[RunnerOptions], Runner]


def _echo(options: RunnerOptions) -> Runner:
    start: Start = importlib.import_module("engines.echo.runner").start
    return start(options)


def _llamacpp(options: RunnerOptions) -> Runner:
    start: Start = importlib.import_module("engines.llamacpp.runner").start
    return start(options)


def _pytorch(options: RunnerOptions) -> Runner:
    if not is_installed("pytorch"):
        raise EngineError(
            "engine.not_installed",
            f"{options.model} runs on torch, which is not installed: {install_line('pytorch')}",
        )
    start: Start = importlib.import_module("engines.pytorch.runner").start
    return start(options)


# Lazy, so that naming an engine does not import its libraries.
RUNNERS: Final[dict[str, Start]] = {
    "echo": _echo,
    "llamacpp": _llamacpp,
    "pytorch": _pytorch,
}
