"""What the walk and the foreign shapes say to each other: a decoded body in, a call's facts out."""

from msgspec import Struct

from appliance.generation import Prompt, SamplingParams, StopConditions


class Decoded(Struct, frozen=True, kw_only=True):
    """A request body, checked and translated. What the door adds later (id, salt) is not in it."""

    model: str
    prompts: tuple[Prompt, ...]
    sampling: SamplingParams
    stopping: StopConditions
    n: int
    stream: bool
    include_usage: bool


class Call(Struct, frozen=True, kw_only=True):
    """The facts of a call that its answer repeats to the client.

    `id` is the request id without a prefix, `created` is in Unix seconds. `include_usage` matters
    to streams alone: a whole answer always carries usage.
    """

    id: str
    model: str
    created: int
    include_usage: bool = False
