"""The walk of a call, top to bottom: every step, in its order.

authenticate 401, decode 400, authorise 404, admit 429 or 503, screen 400, record 503, route 503,
generate, screen the answer, encode, settle

What a step refuses is raised as a HisarError and becomes the answer in `serve`, or, once the answer
has begun, an error inside it. Settling is the way out of the `with` block in `serve`: it waits for
nothing, and nothing gets past it.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Final, Protocol

from litestar.types import ASGIApp, Receive, Send
from litestar.types import Scope as Connection

from appliance.audit.record import Received
from appliance.errors import HisarError
from appliance.generation import GenerationEvent, GenerationRequest
from appliance.identity import Principal, Scope
from gateway.beginning import once_begun
from gateway.box import Box
from gateway.context import context_of
from gateway.exchange import Exchange
from gateway.lease import Lease
from gateway.limits.cost import estimate_prompt_tokens
from gateway.limits.headers import to_headers
from gateway.routing.choose import choose_host
from gateway.screening import check_prompts
from gateway.wire.body import check_media
from gateway.wire.call import Call, Decoded
from gateway.wire.errors import from_exception
from guardrails.streaming import screen_output

_log: Final = logging.getLogger(__name__)


class Wire(Protocol):
    """How one route reads requests and writes answers: a module of `gateway.wire`."""

    def decode(self, body: bytes) -> Decoded: ...

    def encode_stream(
        self, events: AsyncIterator[GenerationEvent], call: Call
    ) -> AsyncIterator[bytes]: ...

    async def encode_whole(self, events: AsyncIterator[GenerationEvent], call: Call) -> bytes: ...


def answer(box: Box, wire: Wire) -> ASGIApp:
    """The answer to one call, to be given the ASGI connection."""

    async def respond(scope: Connection, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, box.config.gateway)
        route = scope["path_template"]
        with box.settlement.lease(context_of(scope), route, exchange) as lease:
            try:
                async with exchange:
                    await walk(box, wire, exchange, lease)
            except Exception as error:  # noqa: BLE001 the outermost boundary of a call
                lease.error = told(error)
                await exchange.refuse(lease.error, to_headers(lease.grant))

    return respond


async def walk(box: Box, wire: Wire, exchange: Exchange, lease: Lease) -> None:
    """The steps of one call."""
    principal = await box.keys.authenticate(exchange.headers, Scope.GENERATE)

    check_media(exchange.headers.get("content-type"), exchange.headers.get("content-encoding"))
    decoded = wire.decode(await exchange.read_body())

    offer = box.access.find(principal, decoded.model)
    lease.model = offer.spec.name
    lease.estimated_prompt_tokens = estimate_prompt_tokens(decoded.prompts)

    context_tokens = box.fleet.context_tokens(lease.model)
    await box.limiter.admit(principal, decoded, context_tokens, lease.grant)

    await check_prompts(box.screen, decoded.prompts)

    await box.audit.append(to_received(box, lease, principal))
    lease.is_recorded = True

    choose_host(box.fleet)

    request = to_request(box, lease, principal, decoded)
    async with aclosing(box.engines.generate(request)) as raw:
        events = lease.follow(screen_output(raw, box.screen, request.num_choices))
        events = await once_begun(events, box.config.gateway.first_event_timeout_s)
        call = to_call(box, lease, decoded)
        headers = to_headers(lease.grant)
        if decoded.stream:
            await exchange.send_stream(wire.encode_stream(events, call), headers)
        else:
            await exchange.send_whole(await wire.encode_whole(events, call), headers)


def to_received(box: Box, lease: Lease, principal: Principal) -> Received:
    """What is recorded before an engine sees the request."""
    return Received(
        request_id=lease.context.id,
        at=box.now(),
        tenant_id=principal.tenant_id,
        principal_id=principal.id,
        route=lease.route,
        model=lease.model,
    )


def to_request(box: Box, lease: Lease, principal: Principal, decoded: Decoded) -> GenerationRequest:
    """What the engine is asked."""
    return GenerationRequest(
        id=lease.context.id,
        model=lease.model,
        prompts=decoded.prompts,
        sampling=decoded.sampling,
        stopping=decoded.stopping,
        n=decoded.n,
        output_format=decoded.output_format,
        echoes_prompt=decoded.echoes_prompt,
        cache_salt=box.secrets.cache_salt(principal.tenant_id),
    )


def to_call(box: Box, lease: Lease, decoded: Decoded) -> Call:
    """What the answer repeats: the model by the name it was asked for."""
    return Call(
        id=lease.context.id,
        model=decoded.model,
        created=int(box.now().timestamp()),
        include_usage=decoded.include_usage,
        repeated=decoded.repeated,
    )


def told(error: Exception) -> HisarError:
    """The error as the caller is told it; one that nobody foresaw is logged."""
    if not isinstance(error, HisarError):
        _log.error("a call failed in a way that nobody foresaw", exc_info=error)
    return from_exception(error)
