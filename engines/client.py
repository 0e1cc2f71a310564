"""How a gateway speaks to the engine host: one connection, shared by all requests, kept alive.

The only retry of the box is here: a request that had no event yet when the host went away is
given to the next host, once. After its first event it fails instead. A question that was not
answered is asked once more, too.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from appliance.embedding import EmbeddingRequest, Embeddings
from appliance.errors import EngineError
from appliance.generation import (
    EngineEvent,
    Failed,
    Finished,
    GenerationEvent,
    GenerationRequest,
)
from appliance.tokens import Detokenized, DetokenizeRequest, Tokenized, TokenizeRequest
from engines.link import LOST, UNREACHABLE, Link
from engines.protocol import FrameError, ModelFacts, Question, Status

_NUM_ATTEMPTS: Final = 2


class ClientPatience(Struct, frozen=True, kw_only=True):
    """How long the client waits for what, in seconds."""

    host_s: float = 10.0
    welcome_s: float = 5.0
    status_s: float = 5.0
    first_retry_s: float = 0.02
    max_retry_s: float = 0.5


class EngineClient:
    """The engine host, as the gateway sees it."""

    def __init__(self, socket_path: Path, patience: ClientPatience | None = None) -> None:
        self._socket_path = socket_path
        self._patience = patience or ClientPatience()
        self._link: Link | None = None
        self._linked = asyncio.Event()
        self._tried = asyncio.Event()
        self._why_not = (UNREACHABLE, "the engine host has not been reached yet")
        self._is_closed = False
        self._keeping: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        """Whether a host answers at this moment."""
        return self._link is not None

    async def start(self) -> None:
        """Try to connect, and keep at it from now on; a host that is not there is no error."""
        self._keeping = asyncio.get_running_loop().create_task(self._keep_linked())
        await self._tried.wait()

    async def close(self) -> None:
        """Hang up; the host aborts what is still running."""
        self._is_closed = True
        self._linked.set()
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})

    async def generate(
        self, request: GenerationRequest, on_event: Callable[[EngineEvent], None] = lambda _: None
    ) -> AsyncGenerator[GenerationEvent, None]:
        """The events of one request, ending in exactly one Finished or Failed. Raises nothing.

        `on_event` is told each as soon as it comes, read here or not, and that the engine began,
        which is no part of the answer.

        Closing the generator early, or cancelling whoever waits on it, aborts the request: the
        Abort is on its way before `aclose` returns, without a further await.
        """
        for attempt in range(1, _NUM_ATTEMPTS + 1):
            try:
                link = await self._reachable()
                mailbox = link.submit(request, on_event)
            except EngineError as error:
                yield Failed(code=error.code, message=error.message, retry_after_s=1.0)
                return
            except FrameError as error:
                yield Failed(code="engine.request_unsendable", message=str(error))
                return
            try:
                event = await mailbox.take()
                if event is LOST and attempt < _NUM_ATTEMPTS:
                    continue
                yield event
                while not isinstance(event, (Finished, Failed)):
                    event = await mailbox.take()
                    yield event
                return
            finally:
                link.release(mailbox)

    async def tokenize(self, request: TokenizeRequest) -> Tokenized:
        """The tokens of a prompt. Raises EngineError, RequestError."""
        reply: Tokenized = await self._ask(request)
        return reply

    async def detokenize(self, request: DetokenizeRequest) -> Detokenized:
        """The text of tokens. Raises EngineError, RequestError."""
        reply: Detokenized = await self._ask(request)
        return reply

    async def embed(self, request: EmbeddingRequest) -> Embeddings:
        """The vectors of texts. Raises EngineError, RequestError.

        Cancelling whoever waits stops the work.
        """
        reply: Embeddings = await self._ask(request)
        return reply

    async def status(self) -> Status:
        """How the host stands. Raises EngineError `engine.unreachable`."""
        try:
            return await asyncio.wait_for(self._present().status(), self._patience.status_s)
        except TimeoutError:
            raise EngineError(UNREACHABLE, "the engine host does not answer") from None

    async def load(self, model: str) -> ModelFacts:
        """Bring a model into memory and learn its facts. Raises EngineError."""
        link = await self._reachable()
        return (await link.load(model)).facts

    async def unload(self, model: str) -> Status:
        """Let a model go. Raises EngineError, with the host's code."""
        link = await self._reachable()
        return await link.unload(model)

    async def _ask(self, question: Question) -> Any:  # noqa: ANN401  its kind follows the question's
        try:
            return await (await self._reachable()).ask(question)
        except EngineError as error:
            if error.code != LOST.code:
                raise
        return await (await self._reachable()).ask(question)

    async def _reachable(self) -> Link:
        """The present link, or the next one within a bound. Raises EngineError."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience.host_s):
                while self._link is None and not self._is_closed:
                    await self._linked.wait()
        return self._present()

    def _present(self) -> Link:
        if self._link is None:
            raise EngineError(self._why_not[0], self._why_not[1], retry_after_s=1.0)
        return self._link

    async def _keep_linked(self) -> None:
        retry_s = self._patience.first_retry_s
        while True:
            if await self._live_once():
                retry_s = self._patience.first_retry_s
            self._tried.set()
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, self._patience.max_retry_s)

    async def _live_once(self) -> bool:
        """Connect, and stay until the host is gone; False where it could not be reached."""
        link = Link(self._unlink)
        try:
            await asyncio.get_running_loop().create_unix_connection(
                lambda: link.channel, str(self._socket_path)
            )
        except OSError:
            self._why_not = (UNREACHABLE, "the engine host is not running")
            return False
        try:
            await self._stay(link)
        except EngineError as error:
            self._why_not = (error.code, error.message)
            return False
        except TimeoutError:
            self._why_not = (UNREACHABLE, "the engine host does not answer")
            return False
        finally:
            link.channel.abort()
            await asyncio.wait({link.closed})
        return True

    async def _stay(self, link: Link) -> None:
        link.greet()
        await asyncio.wait_for(link.welcome, self._patience.welcome_s)
        self._link = link
        self._why_not = (UNREACHABLE, "the engine host has gone away")
        self._linked.set()
        self._tried.set()
        await asyncio.wait({link.closed})

    def _unlink(self) -> None:
        self._link = None
        self._linked.clear()
