"""API keys and tenants in the store."""

from datetime import datetime
from typing import Any

from sqlalchemy import Row, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncEngine

from appliance.errors import StoreError
from appliance.identity import ApiKey, Limits, Scope, Tenant
from appliance.store.connect import name_of
from appliance.store.failures import told_as_store_errors
from appliance.store.tables import api_keys, tenants


class TenantRepository:
    """The tenants of this box."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def ensure(self, tenant: Tenant) -> None:
        """Make the tenant unless one of that id exists."""
        dialect = sqlite if self._engine.dialect.name == "sqlite" else postgresql
        row = {"id": tenant.id, "name": tenant.name}
        with told_as_store_errors(name_of(self._engine)):
            async with self._engine.begin() as connection:
                await connection.execute(
                    dialect.insert(tenants).values(row).on_conflict_do_nothing()
                )

    async def list(self) -> tuple[Tenant, ...]:
        """Every tenant, by id."""
        with told_as_store_errors(name_of(self._engine)):
            async with self._engine.connect() as connection:
                rows = await connection.execute(select(tenants).order_by(tenants.c.id))
                return tuple(Tenant(id=row.id, name=row.name) for row in rows)


class KeyRepository:
    """The API keys of this box. A key is never deleted: a revoked one stays for the record."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def add(self, key: ApiKey) -> None:
        """Keep a new key; its tenant must exist."""
        with told_as_store_errors(name_of(self._engine)):
            async with self._engine.begin() as connection:
                await connection.execute(insert(api_keys).values(_to_row(key)))

    async def get(self, key_id: str) -> ApiKey | None:
        """The key of that public id, whatever its state."""
        with told_as_store_errors(name_of(self._engine)):
            async with self._engine.connect() as connection:
                rows = await connection.execute(select(api_keys).where(api_keys.c.id == key_id))
                row = rows.first()
                return None if row is None else _from_row(row)

    async def list(self) -> tuple[ApiKey, ...]:
        """Every key, oldest first."""
        with told_as_store_errors(name_of(self._engine)):
            async with self._engine.connect() as connection:
                order = (api_keys.c.created_at, api_keys.c.id)
                rows = await connection.execute(select(api_keys).order_by(*order))
                return tuple(_from_row(row) for row in rows)

    async def revoke(self, key_id: str, now: datetime) -> ApiKey:
        """End a key for good; a second time changes nothing. Raises StoreError `key.not_found`."""
        is_active = (api_keys.c.id == key_id) & api_keys.c.revoked_at.is_(None)
        with told_as_store_errors(name_of(self._engine)):
            async with self._engine.begin() as connection:
                await connection.execute(update(api_keys).where(is_active).values(revoked_at=now))
        key = await self.get(key_id)
        if key is None:
            raise StoreError(
                "key.not_found", f"there is no key {key_id!r}", hint="see `hisar keys list`"
            )
        return key


def _to_row(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "tenant_id": key.tenant_id,
        "name": key.name,
        "secret_hash": key.secret_hash,
        "scopes": key.scopes,
        "models": key.models,
        "tokens_per_minute": key.limits.tokens_per_minute,
        "requests_in_flight": key.limits.requests_in_flight,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
    }


def _from_row(row: Row[Any]) -> ApiKey:
    return ApiKey(
        id=row.id,
        tenant_id=row.tenant_id,
        name=row.name,
        secret_hash=row.secret_hash,
        scopes=tuple(Scope(scope) for scope in row.scopes),
        models=row.models,
        limits=Limits(
            tokens_per_minute=row.tokens_per_minute, requests_in_flight=row.requests_in_flight
        ),
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )
