"""What the walk and the foreign shapes say to each other: a decoded body in, a call's facts out."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from appliance.generation import OutputFormat, Prompt, SamplingParams, StopConditions


class Asked(Struct, frozen=True, kw_only=True):
    """A request body, checked and translated: what every call to an engine has.

    `param_names` says how the body calls a field that engines know by another name.
    """

    model: str
    prompts: tuple[Prompt, ...]
    output_format: OutputFormat | None = None
    param_names: Mapping[str, str] = {}

    @property
    def num_choices(self) -> int:
        """How many texts are asked for."""
        return 0

    @property
    def max_tokens(self) -> int | None:
        """How long each of them may become; None where only the context sets a bound."""
        return 0


class Decoded(Asked, frozen=True, kw_only=True):
    """A request for text. What the door adds later (id, salt) is not in it.

    `repeated` are fields of the body that the answer repeats, in the words of its own dialect.
    """

    sampling: SamplingParams
    stopping: StopConditions
    n: int
    stream: bool
    include_usage: bool
    echoes_prompt: bool = False
    repeated: Mapping[str, Any] = {}

    @property
    def num_choices(self) -> int:
        """One for each prompt and sample."""
        return len(self.prompts) * self.n

    @property
    def max_tokens(self) -> int | None:
        """The body's own bound."""
        return self.stopping.max_tokens


class Call(Struct, frozen=True, kw_only=True):
    """The facts of a call that its answer repeats to the client.

    `id` is the request id without a prefix, `created` is in Unix seconds. `include_usage` matters
    to streams alone: a whole answer always carries usage.
    """

    id: str
    model: str
    created: int
    include_usage: bool = False
    repeated: Mapping[str, Any] = {}
