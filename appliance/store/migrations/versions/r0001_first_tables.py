"""Tenants, API keys and request records."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0001"
down_revision: Final = None


def upgrade() -> None:
    """Make the first tables."""
    op.create_table(
        "tenants",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant_id", sa.Text, sa.ForeignKey("tenants.id"), nullable=False, index=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("secret_hash", sa.LargeBinary, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("models", sa.Text, nullable=False),
        sa.Column("tokens_per_minute", sa.BigInteger),
        sa.Column("requests_in_flight", sa.BigInteger),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True)),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
    )
    op.create_table(
        "request_records",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant_id", sa.Text),
        sa.Column("principal_id", sa.Text),
        sa.Column("route", sa.Text),
        sa.Column("model", sa.Text),
        sa.Column("outcome", sa.Text),
        sa.Column("code", sa.Text),
        sa.Column("finish_reasons", sa.Text),
        sa.Column("prompt_tokens", sa.BigInteger),
        sa.Column("completion_tokens", sa.BigInteger),
        sa.Column("cached_tokens", sa.BigInteger),
        sa.Column("queue_s", sa.Float),
        sa.Column("prefill_s", sa.Float),
        sa.Column("decode_s", sa.Float),
        sa.UniqueConstraint("request_id", "kind", name="one_record_of_a_kind"),
    )
