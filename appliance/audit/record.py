"""What is recorded of a request: one record before an engine sees it, one when it is over.

No record holds a character of a prompt or an answer.
"""

from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeAlias

from msgspec import Struct

from appliance.generation import Timings, Usage


class Outcome(StrEnum):
    """How a request ended; each request has exactly one."""

    OK = "ok"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    ERROR = "error"


class Received(Struct, frozen=True, kw_only=True, tag="received"):
    """A request was accepted and is about to reach an engine."""

    request_id: str
    at: datetime
    tenant_id: str
    principal_id: str
    route: str
    model: str


class Completed(Struct, frozen=True, kw_only=True, tag="completed"):
    """A received request is over. `code` is the error's stable code, empty where there was none."""

    request_id: str
    at: datetime
    outcome: Outcome
    code: str = ""
    finish_reasons: tuple[str, ...] = ()
    usage: Usage = Usage()
    timings: Timings = Timings()


AuditRecord: TypeAlias = Received | Completed


class AuditLog(Protocol):
    """Where records go. One writer per process, in order, committed in groups."""

    async def append(self, record: AuditRecord) -> None:
        """Return once the record is durable. Raises StoreError `audit.unavailable`."""

    def append_soon(self, record: AuditRecord) -> None:
        """Hand the record over without waiting; it is written in order, retried until it is."""

    async def close(self) -> None:
        """Write what was handed over, then stop."""
