"""One gateway's connection to the host: its requests and calls come in, their answers go out.

The engines wait for a gateway that falls behind, so that nothing piles up between them. One that
does not catch up is dropped: it shall not cost the others more than a moment.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn

import msgspec

from appliance.errors import EngineError, HisarError
from engines.channel import Channel
from engines.memory import Memory, failed_by
from engines.protocol import (
    PROTOCOL_VERSION,
    Abort,
    Answer,
    Ask,
    Events,
    Forget,
    FrameError,
    FromGateway,
    Generate,
    GetStatus,
    Hello,
    Load,
    Loaded,
    Status,
    Unload,
    Welcome,
)
from engines.refusals import to_refused
from engines.routes import Batch, Route

_log: Final = logging.getLogger(__name__)

# A gateway that takes 1,000 tokens a second catches up in this time.
MAX_BEHIND_S: Final = 5.0

_decoder: Final = msgspec.msgpack.Decoder(FromGateway)


class Connection:
    """What the host knows of one gateway connection. `number` keeps its request ids apart."""

    def __init__(
        self, number: int, memory: Memory, on_closed: Callable[["Connection"], None]
    ) -> None:
        self._number = number
        self._memory = memory
        self._closed_by_host = on_closed
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._handlers: dict[type, Callable[[Any], None]] = {Hello: self._on_hello}
        self.channel = Channel(
            _decoder,
            on_message=lambda message: self._handlers.get(type(message), _refuse)(message),
            on_broken=self._on_broken,
            on_closed=self._on_closed,
            on_pressure=self._on_pressure,
        )
        self._deadline: asyncio.TimerHandle | None = None

    def deliver(self, batch: Batch) -> None:
        """Send events of this connection's requests, in one frame."""
        self.channel.send(Events(batch=tuple(batch)))

    def _on_pressure(self, is_behind: bool) -> None:
        self._catch_up()
        if is_behind:
            self._memory.hold_for(self)
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(MAX_BEHIND_S, self._drop)

    def _catch_up(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._memory.stop_holding_for(self)

    def _drop(self) -> None:
        _log.warning("connection %d does not read and is dropped", self._number)
        self.channel.abort()

    def _on_hello(self, message: Hello) -> None:
        if message.version != PROTOCOL_VERSION:
            self._refuse_connection(
                "engine.version_mismatch",
                f"the host speaks version {PROTOCOL_VERSION}, the gateway {message.version}",
            )
            return
        self._handlers = {
            Generate: self._on_generate,
            Abort: self._on_abort,
            Ask: self._on_ask,
            Forget: self._on_forget,
            Load: self._on_load,
            Unload: self._on_unload,
            GetStatus: self._on_get_status,
        }
        self.channel.send(Welcome(host_pid=os.getpid()))

    def _on_generate(self, message: Generate) -> None:
        request = message.request
        try:
            replica = self._memory.lease(request.model)
        except HisarError as error:
            self.deliver([(request.id, failed_by(error))])
            return
        route = Route(receiver=self, request_id=request.id)
        replica.submit(self._key(request.id), request, route)

    def _on_abort(self, message: Abort) -> None:
        self._memory.abort(self._key(message.request_id))

    def _on_ask(self, message: Ask) -> None:
        async def ask() -> Answer:
            replica = self._memory.lease(message.question.model)
            reply = await replica.ask(message.question)
            return Answer(call_id=message.call_id, reply=reply)

        self._call(message.call_id, ask())

    def _on_forget(self, message: Forget) -> None:
        task = self._calls.get(message.call_id)
        if task is not None:
            task.cancel()

    def _on_load(self, message: Load) -> None:
        async def load() -> Loaded:
            facts = await self._memory.load(message.model)
            return Loaded(call_id=message.call_id, facts=facts)

        self._call(message.call_id, load())

    def _on_unload(self, message: Unload) -> None:
        async def unload() -> Status:
            await self._memory.unload(message.model)
            return await self._memory.status(message.call_id)

        self._call(message.call_id, unload())

    def _on_get_status(self, message: GetStatus) -> None:
        self._call(message.call_id, self._memory.status(message.call_id))

    def _call(self, call_id: int, answer: Coroutine[Any, Any, Answer | Loaded | Status]) -> None:
        """Answer a call when its answer is there; a gateway that leaves is not answered."""
        task = asyncio.get_running_loop().create_task(self._answer(call_id, answer))
        self._calls[call_id] = task
        task.add_done_callback(lambda _: self._calls.pop(call_id, None))

    async def _answer(
        self, call_id: int, answer: Coroutine[Any, Any, Answer | Loaded | Status]
    ) -> None:
        try:
            self.channel.send(await answer)
        except HisarError as error:
            self.channel.send(to_refused(call_id, error))

    def _key(self, request_id: str) -> str:
        return f"{self._number}:{request_id}"

    def _on_broken(self, error: FrameError) -> None:
        self._refuse_connection("engine.bad_frame", str(error))

    def _refuse_connection(self, code: str, message: str) -> None:
        _log.warning("connection %d is refused: %s", self._number, message)
        self.channel.send(to_refused(0, EngineError(code, message)))
        self.channel.close()

    def _on_closed(self) -> None:
        self._catch_up()
        for task in self._calls.values():
            task.cancel()
        self._memory.abort_all_of(self)
        self._closed_by_host(self)


def _refuse(message: FromGateway) -> NoReturn:
    raise FrameError(f"a {type(message).__name__} frame out of turn")
