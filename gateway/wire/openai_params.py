"""The parameters that OpenAI's chat completions and completions have in common.

Ranges are OpenAI's own where it documents them. `top_k`, `min_p`, `repetition_penalty`,
`min_tokens`, `ignore_eos`, `stop_token_ids`, `guided_regex` and `guided_grammar` are not OpenAI's;
they are spelled as vLLM spells them, and as most clients of open models send them.
"""

from typing import Annotated, Any, Final, TypeVar

from msgspec import Meta, Struct

from appliance.generation import OutputFormat, SamplingParams, StopConditions
from gateway.wire.body import is_name
from gateway.wire.openai_formats import ChatFormat
from gateway.wire.schema import Unsupported, invalid_parameter, unsupported_parameter

MAX_SAMPLES: Final = 8
MAX_LOGIT_BIASES: Final = 1024
MAX_BIAS: Final = 100
MAX_STOP_TOKEN_IDS: Final = 64
MAX_REGEX_CHARS: Final = 8_192
MAX_GRAMMAR_CHARS: Final = 65_536
MAX_TOKEN_ID: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1

TokenId = Annotated[int, Meta(ge=0, le=MAX_TOKEN_ID)]
TokenCount = Annotated[int, Meta(ge=1, le=MAX_TOKEN_ID)]
ModelName = Annotated[str, Meta(min_length=1, max_length=256)]
Labels = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]],
    Meta(max_length=16),
]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
StopText = Annotated[str, Meta(min_length=1, max_length=512)]

T = TypeVar("T")

# Other spellings of what there is one spelling for here.
UNSUPPORTED_SPELLINGS: Final = {
    "guided_choice": Unsupported("send `guided_regex`, such as `yes|no`"),
    "guided_decoding_backend": Unsupported("there is one"),
    "guided_json": Unsupported("send `response_format`"),
    "guided_whitespace_pattern": Unsupported("white space in JSON is bounded"),
    "structured_outputs": Unsupported("send `response_format`, `guided_regex` or `guided_grammar`"),
}
EXPECTED: Final = {"response_format.type": "expected text, json_object or json_schema"}


class StreamOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a stream carries besides the answer."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class SharedParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of both routes. None is what a client means by null: the default.

    `guided_grammar` is in Lark's syntax. Of it, `guided_regex` and a `response_format` that asks
    for something there can be one.
    `user` is checked and has no bearing on the answer: who is calling is decided by the key.
    """

    model: ModelName
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: TokenCount | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_SAMPLES)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=MAX_TOKEN_ID)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=-_MAX_INT64 - 1, le=_MAX_INT64)] | None = None
    stop: StopText | Annotated[list[StopText], Meta(max_length=4)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: Annotated[dict[str, Any], Meta(max_length=MAX_LOGIT_BIASES)] | None = None
    user: str | None = None
    response_format: ChatFormat | None = None
    guided_regex: Annotated[str, Meta(min_length=1, max_length=MAX_REGEX_CHARS)] | None = None
    guided_grammar: Annotated[str, Meta(min_length=1, max_length=MAX_GRAMMAR_CHARS)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=2)] | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=MAX_TOKEN_ID)] | None = None
    ignore_eos: bool | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=MAX_STOP_TOKEN_IDS)] | None = None


def check_model(name: str) -> None:
    """Refuse (400) a name that could not stand on one line of a log."""
    if not name.isprintable():
        raise invalid_parameter("model", "expected a name without control characters")


def check_shared(params: SharedParams) -> None:
    """The rules a type cannot say. Raises RequestError (400)."""
    check_model(params.model)
    if params.stream_options is None:
        return
    if not params.stream:
        raise invalid_parameter("stream_options", "allowed only when `stream` is true")
    if params.stream_options.include_obfuscation:
        raise unsupported_parameter(
            "stream_options.include_obfuscation", "chunks are never padded here"
        )


def wants_usage(params: SharedParams) -> bool:
    """Whether a stream shall end with a chunk of usage."""
    return bool(params.stream_options and params.stream_options.include_usage)


def to_sampling(params: SharedParams, num_top_logprobs: int | None) -> SamplingParams:
    """How to choose tokens; `num_top_logprobs` None means: no logprobs at all."""
    defaults = SamplingParams()
    return SamplingParams(
        temperature=_or(params.temperature, defaults.temperature),
        top_p=_or(params.top_p, defaults.top_p),
        top_k=max(_or(params.top_k, defaults.top_k), 0),
        min_p=_or(params.min_p, defaults.min_p),
        seed=params.seed,
        presence_penalty=_or(params.presence_penalty, defaults.presence_penalty),
        frequency_penalty=_or(params.frequency_penalty, defaults.frequency_penalty),
        logit_bias=tuple(map(_to_bias, (params.logit_bias or {}).items())),
        logprobs=num_top_logprobs is not None,
        num_top_logprobs=num_top_logprobs or 0,
        repetition_penalty=_or(params.repetition_penalty, defaults.repetition_penalty),
    )


def to_stopping(params: SharedParams, max_tokens: int | None) -> StopConditions:
    """When to stop. Raises RequestError (400) where the least is more than the most."""
    stop = (params.stop,) if isinstance(params.stop, str) else tuple(params.stop or ())
    min_tokens = params.min_tokens or 0
    if max_tokens is not None and min_tokens > max_tokens:
        raise invalid_parameter("min_tokens", "expected at most `max_tokens`")
    return StopConditions(
        max_tokens=max_tokens,
        stop=stop,
        stop_token_ids=tuple(params.stop_token_ids or ()),
        min_tokens=min_tokens,
        ignores_eos=bool(params.ignore_eos),
    )


def to_output_format(params: SharedParams) -> tuple[str, OutputFormat | None]:
    """What the answer must look like, after the name of the parameter that says so.

    Raises RequestError (400) where two say it.
    """
    asked: dict[str, OutputFormat] = {}
    if params.response_format is not None:
        output_format = params.response_format.to_output_format("response_format")
        if output_format is not None:
            asked["response_format"] = output_format
    if params.guided_regex is not None:
        asked["guided_regex"] = OutputFormat(kind="regex", text=params.guided_regex)
    if params.guided_grammar is not None:
        asked["guided_grammar"] = OutputFormat(kind="grammar", text=params.guided_grammar)
    if len(asked) > 1:
        first, second, *_ = asked
        raise invalid_parameter(second, f"not beside `{first}`")
    return next(iter(asked.items()), ("response_format", None))


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


def _to_bias(item: tuple[str, Any]) -> tuple[int, float]:
    """Checked here, because no path of a type names the key."""
    key, bias = item
    param = f'logit_bias["{key}"]' if is_name(key) else "logit_bias"
    is_plain = key.isascii() and key.isdecimal() and len(key) <= 10 and str(int(key)) == key
    if not is_plain or int(key) > MAX_TOKEN_ID:
        raise invalid_parameter(param, "expected token ids as keys, such as `50256`")
    if type(bias) not in (int, float) or not -MAX_BIAS <= bias <= MAX_BIAS:
        raise invalid_parameter(param, f"expected a number from -{MAX_BIAS} to {MAX_BIAS}")
    return int(key), float(bias)
