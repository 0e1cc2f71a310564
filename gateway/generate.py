"""The walk of a call, top to bottom: every step, in its order.

authenticate 401, decode 400, authorise 404, admit 429 or 503, screen 400, record 503, route 503,
generate, screen the answer, encode, settle

What a step refuses is raised as a HisarError and becomes the answer in `serve`, or, once the answer
has begun, an error inside it. Settling is the way out of the `with` block in `serve`: it waits for
nothing, and nothing gets past it. Engines are asked other things in the same way: those calls share
these steps up to the engine and have their own last ones (`gateway/questions.py`).
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Final, Protocol, TypeVar

from litestar.types import ASGIApp, Receive, Send
from litestar.types import Scope as Connection

from appliance.errors import HisarError
from appliance.generation import GenerationEvent
from appliance.identity import Scope
from gateway.beginning import once_begun
from gateway.box import Box
from gateway.context import context_of
from gateway.exchange import Exchange
from gateway.handover import to_call, to_received, to_request
from gateway.lease import Lease
from gateway.limits.headers import to_headers
from gateway.routing.choose import choose_host
from gateway.screening import check_input
from gateway.threads import compute
from gateway.wire.body import check_media
from gateway.wire.call import Asked, Call, Decoded
from gateway.wire.errors import from_exception
from guardrails.streaming import screen_output

# A body that means ill takes a microsecond for two bytes to read.
LONG_BODY_BYTES: Final = 65_536

_log: Final = logging.getLogger(__name__)

A = TypeVar("A", bound=Asked)


class Wire(Protocol):
    """How one route reads requests and writes answers: a module of `gateway.wire`."""

    def decode(self, body: bytes) -> Decoded: ...

    def encode_stream(
        self, events: AsyncIterator[GenerationEvent], call: Call
    ) -> AsyncIterator[bytes]: ...

    async def encode_whole(self, events: AsyncIterator[GenerationEvent], call: Call) -> bytes: ...


def answer(box: Box, wire: Wire) -> ASGIApp:
    """The text that a model writes, to be given the ASGI connection."""
    return serve(box, wire.decode, partial(generate, box, wire))


def serve(
    box: Box,
    decode: Callable[[bytes], A],
    engage: Callable[[Exchange, Lease, A], Awaitable[None]],
) -> ASGIApp:
    """The answer to one call: `engage` has an engine do what `decode` has read."""

    async def respond(scope: Connection, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, box.config.gateway)
        with box.settlement.lease(context_of(scope), scope["path_template"], exchange) as lease:
            try:
                async with exchange:
                    asked = await enter(box, decode, exchange, lease)
                    await engage(exchange, lease, asked)
            except Exception as error:  # noqa: BLE001 the outermost boundary of a call
                lease.error = told(error)
                await exchange.refuse(lease.error, to_headers(lease.grant))

    return respond


async def enter(box: Box, decode: Callable[[bytes], A], exchange: Exchange, lease: Lease) -> A:
    """The steps up to the engine."""
    lease.principal = await box.callers.authenticate(exchange.headers, Scope.GENERATE)

    check_media(exchange.headers.get("content-type"), exchange.headers.get("content-encoding"))
    asked = await compute(decode, await exchange.read_body(), LONG_BODY_BYTES)

    offer = box.access.find(lease.principal, asked.model)
    lease.model = offer.spec.name

    context_tokens = box.fleet.context_tokens(lease.model)
    await box.limiter.admit(lease.principal, asked, context_tokens, lease.grant)

    await check_input(box.screen, asked)

    await box.audit.append(to_received(box, lease))
    lease.is_recorded = True

    choose_host(box.fleet)
    return asked


async def generate(
    box: Box, wire: Wire, exchange: Exchange, lease: Lease, decoded: Decoded
) -> None:
    """The steps from the engine to the answer's last byte."""
    request = to_request(box, lease, decoded)
    async with aclosing(box.engines.generate(request, lease.tally)) as raw:
        events = lease.follow(screen_output(raw, box.screen, request.num_choices))
        within_s = box.config.gateway.first_event_timeout_s
        events = await once_begun(events, within_s, decoded.param_names)
        call = to_call(box, lease, decoded)
        headers = to_headers(lease.grant)
        if decoded.stream:
            await exchange.send_stream(wire.encode_stream(events, call), headers)
        else:
            await exchange.send_whole(await wire.encode_whole(events, call), headers)


def told(error: Exception) -> HisarError:
    """The error as the caller is told it; one that nobody foresaw is logged."""
    if not isinstance(error, HisarError):
        _log.error("a call failed in a way that nobody foresaw", exc_info=error)
    return from_exception(error)
