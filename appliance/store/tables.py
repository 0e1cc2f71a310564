"""The tables of the store and how their columns keep our types."""

from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)


class UtcTime(TypeDecorator[datetime]):
    """A moment, kept in UTC. SQLite keeps no time zone, so it is put back on reading."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Into the database."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Out of the database."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Words(TypeDecorator[tuple[str, ...]]):
    """A short list of words, as JSON text."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ANN401, ARG002
        """Into the database."""
        return None if value is None else msgspec.json.encode(value).decode()

    def process_result_value(self, value: Any, dialect: Dialect) -> tuple[str, ...]:  # noqa: ANN401, ARG002
        """Out of the database."""
        return () if value is None else msgspec.json.decode(value, type=tuple[str, ...])


metadata = MetaData()

tenants = Table(
    "tenants",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant_id", Text, ForeignKey("tenants.id"), nullable=False, index=True),
    Column("name", Text, nullable=False),
    Column("secret_hash", LargeBinary, nullable=False),
    Column("scopes", Words, nullable=False),
    Column("models", Words, nullable=False),
    Column("tokens_per_minute", BigInteger),
    Column("requests_in_flight", BigInteger),
    Column("created_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime),
    Column("revoked_at", UtcTime),
)

# Rows are only ever added: one of kind `received` and one of kind `completed` for each request.
request_records = Table(
    "request_records",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("request_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("tenant_id", Text),
    Column("principal_id", Text),
    Column("route", Text),
    Column("model", Text),
    Column("outcome", Text),
    Column("code", Text),
    Column("finish_reasons", Words),
    Column("prompt_tokens", BigInteger),
    Column("completion_tokens", BigInteger),
    Column("cached_tokens", BigInteger),
    Column("queue_s", Float),
    Column("prefill_s", Float),
    Column("decode_s", Float),
    UniqueConstraint("request_id", "kind", name="one_record_of_a_kind"),
)
