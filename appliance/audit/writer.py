"""How records become durable: one writer per process commits, in order, whatever has queued.

A lone record is committed at once. While a commit runs others gather, and the next commit takes
them together: throughput comes from the group, never from waiting for one.

A record is either awaited (`append`) or handed over (`append_soon`). Where a commit fails, those
who await are told at once and their records dropped: no record, no service. Records handed over
stay, in order, and are tried again until they are durable; meanwhile `append` refuses, so that no
more requests are let in than can be completed.

A caller owes nothing to a `Received` whose `append` was refused or given up (deadline, cancelled)
while the commit was on the way: it is completed here. Nobody can tell whether a commit that failed
went through, so such a `Received` stays, together with its `Completed`: a request has both or none.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import Struct

from appliance.audit.record import AuditRecord, Completed, Outcome, Received
from appliance.clock import Now
from appliance.errors import StoreError
from appliance.metrics import Metrics

MAX_GROUP: Final = 256
# Reached only when the store fails for long: each record handed over follows one that was durable.
MAX_PENDING: Final = 65_536
APPEND_DEADLINE_S: Final = 5.0
COMMIT_DEADLINE_S: Final = 10.0
CLOSE_DEADLINE_S: Final = 10.0
_FIRST_RETRY_S: Final = 0.05
_LAST_RETRY_S: Final = 2.0

_log: Final = logging.getLogger(__name__)


class RecordSink(Protocol):
    """What keeps records: the store's repository. Giving a group twice must be harmless."""

    async def append(self, records: Sequence[AuditRecord]) -> None:
        """Make the records durable, all or none, in order. Raises StoreError."""


class _Pending(Struct, eq=False):
    """A record on its way, who awaits it, and how its request ends should nobody do so any more."""

    record: AuditRecord
    waiter: "asyncio.Future[None] | None" = None
    outcome: Outcome = Outcome.CANCELLED
    code: str = "request.cancelled"
    # Becomes durable with the record, or is lost with it.
    ending: Completed | None = None

    @property
    def records(self) -> tuple[AuditRecord, ...]:
        return (self.record,) if self.ending is None else (self.record, self.ending)

    @property
    def is_given_up(self) -> bool:
        return self.waiter is not None and self.waiter.done()


class GroupCommitLog:
    """The AuditLog of a process. Made inside its event loop, closed before the loop ends."""

    def __init__(self, sink: RecordSink, metrics: Metrics, now: Now) -> None:
        self._sink = sink
        self._metrics = metrics
        self._now = now
        self._pending: deque[_Pending] = deque()
        self._wake = asyncio.Event()
        self._is_failing = False
        self._is_closing = False
        self._task = asyncio.create_task(self._write(), name="audit-writer")

    @property
    def is_available(self) -> bool:
        """Whether a record appended now would be tried."""
        return not (self._is_failing or self._is_closing or self._task.done())

    async def append(self, record: AuditRecord) -> None:
        """Return once the record is durable. Raises StoreError `audit.unavailable`."""
        if not self.is_available:
            raise _unavailable("the last attempt to write a record failed")
        waiter = asyncio.get_running_loop().create_future()
        pending = _Pending(record, waiter)
        self._push(pending)
        try:
            async with asyncio.timeout(APPEND_DEADLINE_S):
                await waiter
        except TimeoutError:
            _refuse(pending)
            self._complete_if_durable(pending)
            raise _unavailable(f"no record could be written in {APPEND_DEADLINE_S:g} s") from None
        except asyncio.CancelledError:
            self._complete_if_durable(pending)
            raise

    def append_soon(self, record: AuditRecord) -> None:
        """Hand the record over without waiting; it is written in order, retried until it is."""
        if len(self._pending) >= MAX_PENDING or self._task.done():
            self._lose(_Pending(record))
        else:
            self._push(_Pending(record))

    async def close(self) -> None:
        """Write what was handed over, then stop. Raises StoreError where the store stays away."""
        self._is_closing = True
        self._wake.set()
        await asyncio.wait({self._task}, timeout=CLOSE_DEADLINE_S)
        self._task.cancel()
        await asyncio.wait({self._task})
        num_lost = len(self._pending)
        while self._pending:
            self._lose(self._pending.popleft())
        if num_lost:
            raise _unavailable(f"{num_lost} records could not be written before the stop")

    async def _write(self) -> None:
        retry_s = _FIRST_RETRY_S
        while self._pending or not self._is_closing:
            if not self._pending:
                self._wake.clear()
                await self._wake.wait()
            elif await self._commit(self._take_group()):
                retry_s = _FIRST_RETRY_S
            else:
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, _LAST_RETRY_S)

    def _take_group(self) -> list[_Pending]:
        group: list[_Pending] = []
        while self._pending and len(group) < MAX_GROUP:
            pending = self._pending.popleft()
            if not pending.is_given_up:
                group.append(pending)
        return group

    async def _commit(self, group: list[_Pending]) -> bool:
        """Try to make the group durable; False where that should be tried again later."""
        if not group:
            return True
        records = [record for pending in group for record in pending.records]
        try:
            async with asyncio.timeout(COMMIT_DEADLINE_S):
                await self._sink.append(records)
        except (StoreError, TimeoutError) as error:
            _log.warning("records could not be written", exc_info=error, extra={"num": len(group)})
            self._put_back(group)
            return False
        except asyncio.CancelledError:
            self._pending.extendleft(reversed(group))
            raise
        except Exception:  # noqa: BLE001 the task's outermost loop: one bad record must not end it
            _log.exception("records are not fit to be written", extra={"num": len(group)})
            return await self._commit_singly(group)
        self._is_failing = False
        self._metrics.audit_records.inc(len(records))
        self._tell_durable(group)
        return True

    async def _commit_singly(self, group: list[_Pending]) -> bool:
        if len(group) == 1:
            _fail(group[0])
            self._lose(group[0])
            self._is_failing = False
            return True
        for num_done, pending in enumerate(group, start=1):
            if not await self._commit([pending]):
                self._pending.extendleft(reversed(group[num_done:]))
                return False
        return True

    def _tell_durable(self, group: list[_Pending]) -> None:
        for pending in group:
            if pending.waiter is None:
                continue
            if not pending.waiter.done():
                pending.waiter.set_result(None)
            elif isinstance(pending.record, Received):
                self._pending.append(_Pending(self._ending_of(pending)))
        self._metrics.audit_pending.set(len(self._pending))

    def _complete_if_durable(self, pending: _Pending) -> None:
        """For a caller who gave up between the commit and hearing of it."""
        waiter = pending.waiter
        if waiter is None or waiter.cancelled() or not waiter.done():
            return
        if waiter.exception() is None and isinstance(pending.record, Received):
            self._push(_Pending(self._ending_of(pending)))

    def _put_back(self, group: list[_Pending]) -> None:
        """After a failure: refuse everyone who waits, keep what was handed over, in order."""
        self._metrics.audit_failures.inc()
        kept: list[_Pending] = []
        for pending in group:
            if pending.waiter is None:
                kept.append(pending)
            elif isinstance(pending.record, Received):
                _fail(pending)
                kept.append(_Pending(pending.record, ending=self._ending_of(pending)))
            else:
                _fail(pending)
        for pending in self._pending:
            _fail(pending)
        kept.extend(pending for pending in self._pending if not pending.is_given_up)
        self._pending = deque(kept)
        self._is_failing = bool(self._pending)
        self._metrics.audit_pending.set(len(self._pending))

    def _ending_of(self, pending: _Pending) -> Completed:
        return Completed(
            request_id=pending.record.request_id,
            at=self._now(),
            outcome=pending.outcome,
            code=pending.code,
        )

    def _push(self, pending: _Pending) -> None:
        self._pending.append(pending)
        self._metrics.audit_pending.set(len(self._pending))
        self._wake.set()

    def _lose(self, pending: _Pending) -> None:
        self._metrics.audit_lost.inc(len(pending.records))
        _log.error("the record of request %s is lost", pending.record.request_id)


def _fail(pending: _Pending) -> None:
    if pending.waiter is not None and not pending.waiter.done():
        _refuse(pending)
        pending.waiter.set_exception(_unavailable("the record could not be written"))


def _refuse(pending: _Pending) -> None:
    pending.outcome, pending.code = Outcome.REFUSED, "audit.unavailable"


def _unavailable(why: str) -> StoreError:
    return StoreError(
        "audit.unavailable",
        f"a request is not served without a record of it: {why}",
        hint="see `hisar doctor` for the state of the database and its disk",
    )
