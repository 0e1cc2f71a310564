"""What is measured of a model's formats: the records that the measuring process writes, one a line
of JSON, and that a model's manifest keeps."""

from typing import Final, Literal, TypeAlias

from msgspec import Struct

Profile: TypeAlias = Literal["latency", "throughput", "balanced"]

MOST_SEQUENCES: Final = 32


class Effort(Struct, frozen=True, kw_only=True):
    """How much is measured. `num_samples` pieces of each text and prompts are read, 0: all.

    `num_threads` 0: one for each core.
    """

    num_rounds: int = 3
    num_tokens: int = 48
    num_samples: int = 0
    num_threads: int = 0
    max_sequences: int = MOST_SEQUENCES
    formats: tuple[str, ...] = ("Q4_0", "Q8_0", "BF16")


class Speed(Struct, frozen=True, kw_only=True):
    """Tokens a second over several rounds."""

    median: float
    lowest: float
    highest: float


class FormatResult(Struct, frozen=True, kw_only=True):
    """One format of a model, as measured. `decode` is by the number of sequences at a time.

    `equal_tokens` is the share of the original's greedy tokens that this format would choose, too,
    given the same text before them.
    """

    format: str
    file: str
    size_bytes: int
    is_original: bool
    decode: dict[int, Speed]
    prompt: Speed
    perplexity: float
    equal_tokens: float


class LeftOut(Struct, frozen=True, kw_only=True):
    """A format that was not measured, and why."""

    format: str
    reason: str


class Step(Struct, frozen=True, kw_only=True, tag="step"):
    """What the measuring process does next."""

    doing: str


class Outcome(Struct, frozen=True, kw_only=True, tag="outcome"):
    """The last line of a measuring that went well; the original comes first.

    `is_requantised`: the original is quantised itself, so a copy adds its own loss to that.
    """

    results: tuple[FormatResult, ...]
    left_out: tuple[LeftOut, ...] = ()
    is_requantised: bool = False


class Refusal(Struct, frozen=True, kw_only=True, tag="refusal"):
    """The last line of a measuring that could not be done: an error of the box."""

    code: str
    message: str
    hint: str = ""


Line: TypeAlias = Step | Outcome | Refusal


class Optimisation(Struct, frozen=True, kw_only=True):
    """Which format was chosen for a model, for which profile, from which figures.

    `max_loss` is the bound on quality lost that `appliance.optimise_choice` was given.
    """

    format: str
    profile: Profile
    max_loss: float
    original_file: str
    measured_at: int
    results: tuple[FormatResult, ...]
    left_out: tuple[LeftOut, ...] = ()
    is_requantised: bool = False
