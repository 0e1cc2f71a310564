"""What gateway, host and worker say to each other, and how a message becomes bytes.

A frame is a 4-byte big-endian length followed by that many bytes of MessagePack: one message, a
tagged union told apart by its `type`. The same frames run over a Unix socket between gateway and
host, and over a socket pair between host and worker.

gateway -> host     Hello, Generate, Abort, Ask, Forget, Load, Unload, GetStatus
host -> gateway     Welcome, Events, Answer, Loaded, Refused, Status
host -> worker      Generate, Abort, Ask, Forget, GetStatus, Drain
worker -> host      Ready, Events, Answer, ReplicaStatus, Refused

A gateway may open several connections; when one closes, the host aborts every request that came
in on it. Requests are named by `GenerationRequest.id`, unique within a connection; between host
and worker the host puts a connection prefix before it.
"""

import struct
from collections.abc import Iterable
from typing import Final, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from appliance.embedding import EmbeddingRequest, Embeddings
from appliance.generation import EngineEvent, GenerationRequest
from appliance.tokens import Detokenized, DetokenizeRequest, Tokenized, TokenizeRequest

PROTOCOL_VERSION: Final = 1
# A prompt of 2 MB as UTF-8 with its envelope fits 16 times over.
MAX_FRAME_BYTES: Final = 32 * 1024 * 1024

_LENGTH: Final = struct.Struct(">I")

Question: TypeAlias = TokenizeRequest | DetokenizeRequest | EmbeddingRequest
Reply: TypeAlias = Tokenized | Detokenized | Embeddings


class Hello(Struct, frozen=True, kw_only=True, tag="hello"):
    """First frame of a connection. A host of another version answers `Refused` and closes."""

    version: int = PROTOCOL_VERSION


class Welcome(Struct, frozen=True, kw_only=True, tag="welcome"):
    """The host accepts the connection."""

    version: int = PROTOCOL_VERSION
    host_pid: int


class Generate(Struct, frozen=True, kw_only=True, tag="generate"):
    """Start a request. It is answered by `Events` only, ending in one Finished or Failed."""

    request: GenerationRequest


class Abort(Struct, frozen=True, kw_only=True, tag="abort"):
    """Stop a request within one step. Answered by its `Failed(code="request.cancelled")`.

    An unknown or already ended id is ignored: an abort and an ending may cross on the way.
    """

    request_id: str


class Events(Struct, frozen=True, kw_only=True, tag="events"):
    """What one step of the engine has to say, in order, for any number of requests."""

    batch: tuple[tuple[str, EngineEvent], ...]


class Ask(Struct, frozen=True, kw_only=True, tag="ask"):
    """Something a model can say at once. Answered by `Answer` or `Refused` with that `call_id`."""

    call_id: int
    question: Question


class Answer(Struct, frozen=True, kw_only=True, tag="answer"):
    """What a model says to a question."""

    call_id: int
    reply: Reply


class Forget(Struct, frozen=True, kw_only=True, tag="forget"):
    """Nobody waits for this call any more. It is answered or not; an unknown one is ignored."""

    call_id: int


class Load(Struct, frozen=True, kw_only=True, tag="load"):
    """Bring a model into memory. Answered by `Loaded` or `Refused` with the same `call_id`."""

    call_id: int
    model: str


class Loaded(Struct, frozen=True, kw_only=True, tag="loaded"):
    """The model is in memory, and the facts a gateway needs to know of it."""

    call_id: int
    facts: "ModelFacts"


class Unload(Struct, frozen=True, kw_only=True, tag="unload"):
    """Let a model go; its running requests fail. Answered by `Status` or `Refused`."""

    call_id: int
    model: str


class GetStatus(Struct, frozen=True, kw_only=True, tag="get_status"):
    """Ask how things stand. A host answers `Status`, a worker `ReplicaStatus`."""

    call_id: int


class Drain(Struct, frozen=True, kw_only=True, tag="drain"):
    """Take no new request; leave when the last running one has ended."""


class Refused(Struct, frozen=True, kw_only=True, tag="refused"):
    """A call could not be done: a stable code of `appliance.errors`, and why.

    `call_id` 0 concerns the whole connection: a host says it of a gateway it cannot talk to, a
    worker of a model it can never load; the sender then closes. `retry_after_s` is set where trying
    again can help, `param` where a field of the request is at fault.
    """

    call_id: int
    code: str
    message: str
    retry_after_s: float | None = None
    param: str | None = None


class ModelFacts(Struct, frozen=True, kw_only=True):
    """What a loaded model is. `context_tokens` bounds prompt plus completion of one choice.

    `scores_prompts`: its engine can tell the logprobs of a prompt's own tokens. `embedding_size` is
    how many numbers its embeddings have, 0 where it makes none. A model that does not generate only
    embeds. `verifies_drafts`: it can compute tokens that are only guessed, and forget them.
    `is_batch_invariant`: it computes a token alike whatever is computed beside it. `kv_bytes` is
    what keys and values may take of the machine's memory where that is not so much a slot.
    """

    model: str
    runner: str
    context_tokens: int
    vocabulary_size: int
    num_slots: int
    scores_prompts: bool = False
    embedding_size: int = 0
    generates: bool = True
    verifies_drafts: bool = False
    is_batch_invariant: bool = False
    kv_bytes: int = 0


class SchedulerStats(Struct, frozen=True, kw_only=True):
    """The state and the running totals of one scheduler; totals only ever grow."""

    num_running: int = 0
    num_waiting: int = 0
    kv_used_tokens: int = 0
    kv_cached_tokens: int = 0
    kv_total_tokens: int = 0
    num_preemptions: int = 0
    num_steps: int = 0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    kv_saved_tokens: int = 0


class ReplicaStatus(Struct, frozen=True, kw_only=True, tag="replica_status"):
    """How one worker stands. `call_id` 0: sent unasked, when something changed.

    `load_s` is how long its latest start took, from the wish to readiness, room made included.
    `failure_code` says why a model that has failed could not be loaded.
    """

    call_id: int = 0
    model: str = ""
    state: str = "starting"
    pid: int = 0
    restarts: int = 0
    resident_bytes: int = 0
    facts: ModelFacts | None = None
    stats: SchedulerStats = SchedulerStats()
    load_s: float = 0.0
    failure_code: str = ""


class Status(Struct, frozen=True, kw_only=True, tag="status"):
    """How a host stands, replica by replica, and how often each model made room for another."""

    call_id: int
    host_pid: int
    replicas: tuple[ReplicaStatus, ...]
    evictions: dict[str, int] = {}


class Ready(Struct, frozen=True, kw_only=True, tag="ready"):
    """A worker has its weights in memory and has run a first step."""

    facts: ModelFacts


FromGateway: TypeAlias = Hello | Generate | Abort | Ask | Forget | Load | Unload | GetStatus
ToGateway: TypeAlias = Welcome | Events | Answer | Loaded | Refused | Status
ToWorker: TypeAlias = Generate | Abort | Ask | Forget | GetStatus | Drain
FromWorker: TypeAlias = Ready | Events | Answer | ReplicaStatus | Refused
AnyMessage: TypeAlias = FromGateway | ToGateway | Drain | FromWorker

_encoder: Final = msgspec.msgpack.Encoder()
_M = TypeVar("_M")


class FrameError(Exception):
    """The other side sent something that is not a frame of this protocol."""


def encode_frame(message: AnyMessage) -> bytes:
    """One message as one frame. Raises FrameError above MAX_FRAME_BYTES.

    Also for what MessagePack cannot carry: half a surrogate pair, a number over 64 bits.
    """
    try:
        body = _encoder.encode(message)
    except (UnicodeEncodeError, OverflowError) as error:
        raise FrameError(f"a message cannot be encoded: {type(error).__name__}") from None
    if len(body) > MAX_FRAME_BYTES:
        raise FrameError(f"a frame of {len(body)} bytes is over the limit of {MAX_FRAME_BYTES}")
    return _LENGTH.pack(len(body)) + body


def decode_body(decoder: msgspec.msgpack.Decoder[_M], body: bytes) -> _M:
    """The message in a frame's body. Raises FrameError, which quotes nothing of the body."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FrameError(f"a frame cannot be read: {type(error).__name__}") from None


def split_frames(buffer: bytearray) -> Iterable[bytes]:
    """Take every whole frame body off the front of `buffer`, leaving the unfinished rest in it.

    Raises FrameError for a length over MAX_FRAME_BYTES.
    """
    start = 0
    try:
        while len(buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length > MAX_FRAME_BYTES:
                raise FrameError(f"a frame announces {length} bytes, over {MAX_FRAME_BYTES}")
            end = start + _LENGTH.size + length
            if len(buffer) < end:
                return
            body = bytes(memoryview(buffer)[start + _LENGTH.size : end])
            start = end
            yield body
    finally:
        del buffer[:start]
