"""`hisar keys`: make, list, show and revoke API keys, also while the box is running.

A new key works at once, a revoked one stops working within a second.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TypeVar

import click
from msgspec import Struct

from appliance.api_keys import KeyGrant, KeyState, issue, state_of
from appliance.catalogue import Library
from appliance.clock import utc_now
from appliance.commands.options import COUNT
from appliance.commands.show import print_json, print_table, printable
from appliance.config_file import load
from appliance.environment import read_environment
from appliance.errors import CatalogueError, StoreError, UsageError
from appliance.generation import Usage
from appliance.home import Home
from appliance.identity import ApiKey, Limits, Scope, Tenant
from appliance.known_models import KNOWN_MODELS
from appliance.local_key import LOCAL_TENANT
from appliance.nearest import nearest
from appliance.secrets import load_secrets
from appliance.store.store import Store, open_store

T = TypeVar("T")

_MAX_NAME_CHARS = 100


class KeyView(Struct, frozen=True, kw_only=True):
    """A key as it may be shown: everything but its secret."""

    id: str
    name: str
    tenant: str
    state: KeyState
    scopes: tuple[Scope, ...]
    models: tuple[str, ...]
    limits: Limits
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class NewKeyView(Struct, frozen=True, kw_only=True):
    """A key just made; `key` is its full text, seen here and never again."""

    key: str
    id: str
    name: str
    tenant: str
    expires_at: datetime | None


class UsedKeyView(Struct, frozen=True, kw_only=True):
    """A key and what it has used."""

    key: KeyView
    num_requests: int
    usage: Usage


as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def keys() -> None:
    """Make, list, show and revoke API keys."""


@keys.command()
@click.option("--name", default="", help="What the key is for, so that you know it again.")
@click.option("--tenant", default=LOCAL_TENANT.id, show_default=True, help="Whose key it is.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([scope.value for scope in Scope]),
    default=[Scope.GENERATE.value],
    show_default=True,
    help="What it may do; can be given several times.",
)
@click.option("--model", "models", multiple=True, help="A model it may use (default: all).")
@click.option("--tokens-per-minute", type=COUNT)
@click.option("--requests-in-flight", type=COUNT)
@click.option("--days", type=click.IntRange(1, 36_500), help="Days until it expires.")
@as_json_option
def create(
    name: str,
    tenant: str,
    scopes: tuple[str, ...],
    models: tuple[str, ...],
    tokens_per_minute: int | None,
    requests_in_flight: int | None,
    days: int | None,
    as_json: bool,
) -> None:
    """Make a key. Its text is printed once and cannot be shown again."""
    _require_plain(name)
    _require_plain(tenant, may_be_empty=False)
    home = read_environment().home
    _require_models(models, home)
    now = utc_now()
    grant = KeyGrant(
        tenant_id=tenant,
        name=name,
        scopes=tuple(Scope(scope) for scope in dict.fromkeys(scopes)),
        models=models,
        limits=Limits(tokens_per_minute=tokens_per_minute, requests_in_flight=requests_in_flight),
        expires_at=None if days is None else now + timedelta(days=days),
    )
    key, text = issue(grant, load_secrets(home).pepper, now)

    async def keep(store: Store) -> None:
        await store.tenants.ensure(Tenant(id=tenant, name=tenant))
        await store.keys.add(key)

    _with_store(keep)
    if as_json:
        shown = NewKeyView(key=text, id=key.id, name=name, tenant=tenant, expires_at=key.expires_at)
        print_json(shown)
    else:
        click.echo(text)
        click.echo(f"Key {key.id} is made. Keep it now: it cannot be shown again.", err=True)


@keys.command("list")
@as_json_option
def list_keys(as_json: bool) -> None:
    """Every key, oldest first, without secrets."""
    now = utc_now()
    views = [_view(key, now) for key in _with_store(lambda store: store.keys.list())]
    if as_json:
        print_json(views)
        return
    print_table(
        ("ID", "STATE", "TENANT", "SCOPES", "CREATED", "NAME"),
        [
            (
                view.id,
                view.state.value,
                printable(view.tenant),
                ",".join(view.scopes),
                f"{view.created_at:%Y-%m-%d %H:%M}",
                printable(view.name),
            )
            for view in views
        ],
    )


@keys.command()
@click.argument("key_id")
@as_json_option
def show(key_id: str, as_json: bool) -> None:
    """One key, by its id, and what it has used."""
    _refuse_whole_key(key_id)

    async def look(store: Store) -> UsedKeyView:
        key = await store.keys.get(key_id)
        if key is None:
            raise StoreError(
                "key.not_found", f"there is no key {key_id!r}", hint="see `hisar keys list`"
            )
        used = await store.requests.usage_of(key_id)
        view = _view(key, utc_now())
        return UsedKeyView(key=view, num_requests=used.num_requests, usage=used.usage)

    shown = _with_store(look)
    if as_json:
        print_json(shown)
        return
    key = shown.key
    lines = {
        "id": key.id,
        "name": printable(key.name),
        "tenant": printable(key.tenant),
        "state": key.state.value,
        "scopes": ", ".join(key.scopes),
        "models": printable(", ".join(key.models)) or "all",
        "tokens per minute": str(key.limits.tokens_per_minute or "as configured"),
        "requests in flight": str(key.limits.requests_in_flight or "as configured"),
        "expires": str(key.expires_at or "never"),
        "used": f"{shown.num_requests} requests, {shown.usage.prompt_tokens} prompt tokens, "
        f"{shown.usage.completion_tokens} completion tokens",
    }
    for name, value in lines.items():
        click.echo(f"{name:18}  {value}")


@keys.command()
@click.argument("key_id")
@as_json_option
def revoke(key_id: str, as_json: bool) -> None:
    """End a key for good."""
    _refuse_whole_key(key_id)
    now = utc_now()
    key = _with_store(lambda store: store.keys.revoke(key_id, now))
    if as_json:
        print_json(_view(key, now))
    else:
        click.echo(f"Key {key.id} is revoked.")


def _with_store(work: Callable[[Store], Awaitable[T]]) -> T:
    """Open the box's store for one piece of work."""
    home = read_environment().home
    url = load(home.config).store.url

    async def run() -> T:
        store = await open_store(url, home)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def _view(key: ApiKey, now: datetime) -> KeyView:
    return KeyView(
        id=key.id,
        name=key.name,
        tenant=key.tenant_id,
        state=state_of(key, now),
        scopes=key.scopes,
        models=key.models,
        limits=key.limits,
        created_at=key.created_at,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
    )


def _require_plain(word: str, *, may_be_empty: bool = True) -> None:
    is_plain = len(word) <= _MAX_NAME_CHARS and word.isprintable() and word == word.strip()
    if not is_plain or not (word or may_be_empty):
        least = 0 if may_be_empty else 1
        raise UsageError(
            "usage.bad_name",
            f"a name here is {least} to {_MAX_NAME_CHARS} printable characters, no space around",
        )


def _require_models(models: tuple[str, ...], home: Home) -> None:
    """A key for a model that nobody has heard of would be a key for nothing."""
    if not models:
        return
    config = load(home.config)
    here = [spec.name for spec in Library(home.models).list()]
    names = {*here, *KNOWN_MODELS, *config.aliases, *config.engine.preload}
    for model in models:
        if model not in names:
            guess = nearest(model, sorted(names))
            raise CatalogueError(
                "model.not_found",
                f"there is no model {model!r} here",
                hint=f"did you mean {guess!r}?" if guess else "fetch it first: `hisar models pull`",
            )


def _refuse_whole_key(text: str) -> None:
    """Keys on a command line end up in the shell's history and the process list."""
    _require_plain(text)
    if text.startswith("hsr_"):
        raise UsageError(
            "usage.whole_key",
            "give the key's id, not the key",
            hint="the id is the part between the first two underscores",
        )
