"""Request records in the store: rows that are only ever added, in the order they came."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncEngine

from appliance.audit.record import AuditRecord, Completed, Outcome, Received
from appliance.generation import Timings, Usage
from appliance.metering import UsageRecord
from appliance.store.append_thread import AppendThread
from appliance.store.connect import name_of
from appliance.store.failures import told_as_store_errors
from appliance.store.tables import request_records

LOST_IN_CRASH: Final = "request.lost_in_crash"

_EMPTY: Final[dict[str, Any]] = {
    column.name: None for column in request_records.columns if column.name != "seq"
}


class RequestRepository:
    """What was recorded of each request: one `received` and one `completed` row."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._appending = AppendThread(engine)
        dialect = sqlite if engine.dialect.name == "sqlite" else postgresql
        self._add = dialect.insert(request_records).on_conflict_do_nothing()

    async def append(self, records: Sequence[AuditRecord]) -> None:
        """Make the records durable, all or none, in order.

        A record of a kind that its request already has is left out, so that a group may be given
        again when nobody knows whether its commit went through.
        """
        rows = [_to_row(record) for record in records]
        with told_as_store_errors(name_of(self._engine)):
            await self._appending.commit(self._add, rows)

    async def close(self) -> None:
        """Let the connection go that appends."""
        await self._appending.close()

    async def close_lost(self, now: datetime) -> int:
        """Complete, as errors, the requests that a process took and did not live to complete.

        What they had used went with it: their counts are 0.
        To be called before a gateway takes its first request. Returns how many there were.
        """
        open_ids = (
            select(request_records.c.request_id)
            .group_by(request_records.c.request_id)
            .having(func.min(request_records.c.kind) == "received")
        )
        with told_as_store_errors(name_of(self._engine)):
            async with self._engine.connect() as connection:
                ids = (await connection.scalars(open_ids)).all()
        lost = [
            Completed(request_id=lost_id, at=now, outcome=Outcome.ERROR, code=LOST_IN_CRASH)
            for lost_id in ids
        ]
        if lost:
            await self.append(lost)
        return len(lost)

    async def find(self, request_id: str) -> tuple[AuditRecord, ...]:
        """What is recorded of one request, in order."""
        of_request = request_records.c.request_id == _storable(request_id)
        return await self._read(select(request_records).where(of_request))

    async def usage_of(self, principal_id: str) -> UsageRecord:
        """What a principal has used so far, over all its completed requests."""
        received, completed = request_records.alias(), request_records.alias()
        sums = (
            select(
                func.count(completed.c.seq),
                func.coalesce(func.sum(completed.c.prompt_tokens), 0),
                func.coalesce(func.sum(completed.c.completion_tokens), 0),
                func.coalesce(func.sum(completed.c.cached_tokens), 0),
            )
            .join_from(received, completed, received.c.request_id == completed.c.request_id)
            .where(received.c.kind == "received", completed.c.kind == "completed")
            .where(received.c.principal_id == principal_id)
        )
        with told_as_store_errors(name_of(self._engine)):
            async with self._engine.connect() as connection:
                count, prompt, completion, cached = (await connection.execute(sums)).one()
        return UsageRecord(
            principal_id=principal_id,
            num_requests=count,
            usage=Usage(
                prompt_tokens=int(prompt),
                completion_tokens=int(completion),
                cached_tokens=int(cached),
            ),
        )

    async def _read(self, query: Any) -> tuple[AuditRecord, ...]:  # noqa: ANN401 a select
        with told_as_store_errors(name_of(self._engine)):
            async with self._engine.connect() as connection:
                rows = await connection.execute(query.order_by(request_records.c.seq))
                return tuple(_from_row(row) for row in rows)


def _storable(text: str) -> str:
    """The text with what no database keeps (NUL, half a surrogate pair) written as an escape."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\u0000")


def _to_row(record: AuditRecord) -> dict[str, Any]:
    row = _EMPTY | {"request_id": _storable(record.request_id), "at": record.at}
    if isinstance(record, Received):
        return row | {
            "kind": "received",
            "tenant_id": _storable(record.tenant_id),
            "principal_id": _storable(record.principal_id),
            "route": _storable(record.route),
            "model": _storable(record.model),
        }
    return row | {
        "kind": "completed",
        "outcome": record.outcome.value,
        "code": record.code,
        "finish_reasons": record.finish_reasons,
        "prompt_tokens": record.usage.prompt_tokens,
        "completion_tokens": record.usage.completion_tokens,
        "cached_tokens": record.usage.cached_tokens,
        "queue_s": record.timings.queue_s,
        "prefill_s": record.timings.prefill_s,
        "decode_s": record.timings.decode_s,
    }


def _from_row(row: Row[Any]) -> AuditRecord:
    if row.kind == "received":
        return Received(
            request_id=row.request_id,
            at=row.at,
            tenant_id=row.tenant_id,
            principal_id=row.principal_id,
            route=row.route,
            model=row.model,
        )
    return Completed(
        request_id=row.request_id,
        at=row.at,
        outcome=Outcome(row.outcome),
        code=row.code,
        finish_reasons=row.finish_reasons,
        usage=Usage(
            prompt_tokens=row.prompt_tokens,
            completion_tokens=row.completion_tokens,
            cached_tokens=row.cached_tokens,
        ),
        timings=Timings(queue_s=row.queue_s, prefill_s=row.prefill_s, decode_s=row.decode_s),
    )
