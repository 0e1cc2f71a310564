"""Where everything the gateway is made of is put together, and taken apart again."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from litestar import Litestar, Request, Response
from litestar.di import Provide
from litestar.types import ASGIApp

from appliance.audit.writer import GroupCommitLog
from appliance.catalogue import Library
from appliance.clock import Monotonic, utc_now
from appliance.config import Config
from appliance.home import Home
from appliance.metrics import Metrics
from appliance.secrets import load_secrets
from appliance.store.key_cache import KeyCache
from appliance.store.store import open_store
from engines.client import EngineClient
from gateway.api import (
    chat,
    completions,
    embeddings,
    health,
    messages,
    metrics,
    models,
    responses,
    tokens,
)
from gateway.auth.access import Access
from gateway.auth.api_keys import ApiKeys
from gateway.auth.authenticate import Authenticator, Identify
from gateway.box import Box
from gateway.context import context_of
from gateway.drain import Drain
from gateway.front import Front
from gateway.limits.limiter import Limiter
from gateway.routing.fleet import Fleet
from gateway.settle import Settlement
from gateway.wire.envelopes import envelope_of
from guardrails.screen import Screen


@asynccontextmanager
async def open_box(home: Home, config: Config) -> AsyncIterator[Box]:
    """A whole gateway but for its socket. Raises ConfigError, MachineError or StoreError where it
    cannot be.

    On the way out records are flushed before the store is closed.
    """
    clock = time.monotonic
    secrets = load_secrets(home)
    library = Library(home.models)
    limiter = Limiter(config.limits, clock)
    numbers = Metrics()
    async with AsyncExitStack() as stack:
        store = await open_store(config.store.url, home)
        stack.push_async_callback(store.close)
        await store.requests.close_lost(utc_now())
        audit = GroupCommitLog(store.requests, numbers, utc_now)
        stack.push_async_callback(audit.close)
        engines = EngineClient(home.engine_socket)
        await engines.start()
        stack.push_async_callback(engines.close)
        fleet = Fleet(engines, library, numbers)
        await stack.enter_async_context(_running(fleet.keep_watch()))
        key_cache = KeyCache(store.keys, clock)
        keys = ApiKeys(key_cache, secrets.pepper, config.limits.per_key, utc_now)
        tokens = await stack.enter_async_context(_tokens(config, numbers, clock))
        yield Box(
            config=config,
            secrets=secrets,
            store=store,
            callers=Authenticator(keys, tokens),
            access=Access(library, config.aliases),
            limiter=limiter,
            screen=Screen(config.guardrails.denied_words),
            audit=audit,
            engines=engines,
            fleet=fleet,
            metrics=numbers,
            settlement=Settlement(limiter, audit, numbers, clock=clock, now=utc_now),
            drain=Drain(),
            now=utc_now,
        )


def build_app(box: Box) -> ASGIApp:
    """The routes of the gateway behind what every request passes first."""
    app = Litestar(
        route_handlers=[
            chat.create_chat_completion,
            completions.create_completion,
            responses.create_response,
            messages.create_message,
            embeddings.create_embeddings,
            tokens.cut_into_tokens,
            tokens.put_together,
            models.list_models,
            models.show_model,
            health.live,
            health.ready,
            metrics.show_metrics,
        ],
        dependencies={"box": Provide(lambda: box, sync_to_thread=False)},
        exception_handlers={Exception: _answer_exception},
        openapi_config=None,
        logging_config=None,
    )
    return Front(app, box.config.gateway.allowed_hosts, box.drain, time.monotonic)


def _answer_exception(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    envelope = envelope_of(request.scope["path"])
    answer = envelope.to_answer(error, context_of(request.scope).id)
    return Response(answer.body, status_code=answer.status, headers=answer.headers)


@asynccontextmanager
async def _tokens(
    config: Config, numbers: Metrics, clock: Monotonic
) -> AsyncIterator[Identify | None]:
    """The tokens of the realm, where there is one: what reads them is loaded only then."""
    if not config.identity.issuer:
        yield None
        return
    from gateway.auth.key_set import KeySet
    from gateway.auth.realm import Realm
    from gateway.auth.tokens import Tokens

    realm = Realm(config.identity.issuer, config.identity.ca_file)
    keys = KeySet(realm.fetch_keys, clock)
    async with _running(keys.keep_fresh()):
        yield Tokens(config.identity, keys, config.limits.per_key, numbers, utc_now)


@asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """A task that lives as long as the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
