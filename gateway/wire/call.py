"""What the walk and the foreign shapes say to each other: a decoded body in, a call's facts out."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from appliance.generation import OutputFormat, Prompt, SamplingParams, StopConditions


class Decoded(Struct, frozen=True, kw_only=True):
    """A request body, checked and translated. What the door adds later (id, salt) is not in it.

    `repeated` are fields of the body that the answer repeats, in the words of its own dialect.
    """

    model: str
    prompts: tuple[Prompt, ...]
    sampling: SamplingParams
    stopping: StopConditions
    n: int
    stream: bool
    include_usage: bool
    output_format: OutputFormat | None = None
    echoes_prompt: bool = False
    repeated: Mapping[str, Any] = {}


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
