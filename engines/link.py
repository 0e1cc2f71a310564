"""One connection from a gateway to the host: the requests and calls under way on it.

Everything under way ends when the connection does: requests in Failed `engine.host_lost`, calls in
an EngineError of the same code.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from appliance.errors import EngineError
from appliance.generation import (
    Begun,
    EngineEvent,
    Failed,
    Finished,
    GenerationEvent,
    GenerationRequest,
)
from engines.channel import Channel
from engines.protocol import (
    Abort,
    Answer,
    Ask,
    Events,
    Forget,
    FrameError,
    Generate,
    GetStatus,
    Hello,
    Load,
    Loaded,
    Question,
    Refused,
    Reply,
    Status,
    ToGateway,
    Unload,
    Welcome,
)
from engines.refusals import to_error

UNREACHABLE: Final = "engine.unreachable"
LOST: Final = Failed(
    code="engine.host_lost", message="the engine host ended or hung up", retry_after_s=1.0
)

_decoder: Final = msgspec.msgpack.Decoder(ToGateway)


class Mailbox:
    """The events of one request that its reader has not taken yet, at most one whole answer.

    `on_event` is told each as it comes; the beginning is told to nobody else.
    """

    __slots__ = ("_arrival", "_events", "key", "on_event")

    def __init__(self, key: str, on_event: Callable[[EngineEvent], None]) -> None:
        self.key = key
        self.on_event = on_event
        self._events: deque[GenerationEvent] = deque()
        self._arrival: asyncio.Future[None] | None = None

    def put(self, event: GenerationEvent) -> None:
        """Leave an event for the reader."""
        self._events.append(event)
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    async def take(self) -> GenerationEvent:
        """The next event, once there is one. One reader at a time."""
        if not self._events:
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        return self._events.popleft()


class Link:
    """The gateway's end of one connection. `on_closed` is called before anything on it fails."""

    def __init__(self, on_closed: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self._on_gone = on_closed
        self._mailboxes: dict[str, Mailbox] = {}
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._handlers: dict[type, Callable[[Any], None]] = {
            Events: self._on_events,
            Answer: self._on_answered,
            Loaded: self._on_answered,
            Status: self._on_answered,
            Refused: self._on_refused,
            Welcome: self._on_welcome,
        }
        # Done when the host has answered Hello, one way or the other.
        self.welcome: asyncio.Future[None] = loop.create_future()
        self.channel = Channel(
            _decoder,
            on_message=lambda message: self._handlers[type(message)](message),
            on_broken=lambda _: None,
            on_closed=self._on_closed,
        )
        self.closed = self.channel.closed

    def greet(self) -> None:
        """Say Hello, the first frame of a connection."""
        self.channel.send(Hello())

    def submit(
        self, request: GenerationRequest, on_event: Callable[[EngineEvent], None]
    ) -> Mailbox:
        """Start a request. Its id is numbered on the way: a caller may use one twice.

        Raises FrameError for a request that no frame can carry.
        """
        key = f"{request.id}#{next(self._numbers)}"
        self.channel.send(Generate(request=msgspec.structs.replace(request, id=key)))
        mailbox = self._mailboxes[key] = Mailbox(key, on_event)
        return mailbox

    def release(self, mailbox: Mailbox) -> None:
        """The reader is gone: a request that has not ended is aborted."""
        if self._mailboxes.pop(mailbox.key, None) is not None:
            self.channel.send(Abort(request_id=mailbox.key))

    async def load(self, model: str) -> Loaded:
        """Ask for a model to be in memory. Raises EngineError."""
        call_id = next(self._numbers)
        answer: asyncio.Future[Loaded] = self._call(Load(call_id=call_id, model=model))
        return await answer

    async def unload(self, model: str) -> Status:
        """Ask for a model to be let go. Raises EngineError."""
        call_id = next(self._numbers)
        answer: asyncio.Future[Status] = self._call(Unload(call_id=call_id, model=model))
        return await answer

    async def status(self) -> Status:
        """Ask how the host stands. Raises EngineError."""
        call_id = next(self._numbers)
        answer: asyncio.Future[Status] = self._call(GetStatus(call_id=call_id))
        return await answer

    async def ask(self, question: Question) -> Reply:
        """What a model says to a question. Raises EngineError, RequestError.

        Whoever is cancelled while waiting has the host forget the question.
        """
        call_id = next(self._numbers)
        answer: asyncio.Future[Answer] = self._call(Ask(call_id=call_id, question=question))
        try:
            return (await answer).reply
        except asyncio.CancelledError:
            self.channel.send(Forget(call_id=call_id))
            raise

    def _call(self, message: Ask | Load | Unload | GetStatus) -> asyncio.Future[Any]:
        answer = asyncio.get_running_loop().create_future()
        try:
            self.channel.send(message)
        except FrameError as error:
            raise EngineError("engine.request_unsendable", str(error)) from None
        self._calls[message.call_id] = answer
        answer.add_done_callback(lambda _: self._calls.pop(message.call_id, None))
        return answer

    def _on_events(self, message: Events) -> None:
        for key, event in message.batch:
            mailbox = self._mailboxes.get(key)
            if mailbox is None:
                continue
            mailbox.on_event(event)
            if isinstance(event, Begun):
                continue
            if isinstance(event, (Finished, Failed)):
                del self._mailboxes[key]
            mailbox.put(event)

    def _on_answered(self, message: Answer | Loaded | Status) -> None:
        answer = self._calls.get(message.call_id)
        if answer is not None and not answer.done():
            answer.set_result(message)

    def _on_refused(self, message: Refused) -> None:
        answer = self.welcome if message.call_id == 0 else self._calls.get(message.call_id)
        if answer is not None and not answer.done():
            answer.set_exception(to_error(message))

    def _on_welcome(self, message: Welcome) -> None:  # noqa: ARG002
        if not self.welcome.done():
            self.welcome.set_result(None)

    def _on_closed(self) -> None:
        # First, so that whoever learns of the loss below finds no link to try again on.
        self._on_gone()
        if not self.welcome.done():
            self.welcome.set_exception(EngineError(UNREACHABLE, "the engine host hung up"))
        for answer in tuple(self._calls.values()):
            if not answer.done():
                answer.set_exception(to_error(LOST))
        mailboxes, self._mailboxes = self._mailboxes, {}
        for mailbox in mailboxes.values():
            mailbox.put(LOST)
