"""No acknowledged record is ever lost, order is kept, and no record means no service.

BerriAI/litellm#38157, librefang#4080, mojaloop/project#3914: rows queued at the stop were lost, and
requests were served while nothing could be written.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy import text

from appliance.audit import writer
from appliance.audit.record import AuditRecord, Completed, Outcome, Received
from appliance.audit.writer import GroupCommitLog
from appliance.errors import StoreError
from appliance.home import Home
from appliance.metrics import Metrics
from appliance.store.store import Store, open_store

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def received(number: int) -> Received:
    return Received(
        request_id=f"r{number}", at=NOW, tenant_id="t", principal_id="p", route="/", model="m"
    )


def completed(number: int) -> Completed:
    return Completed(request_id=f"r{number}", at=NOW, outcome=Outcome.OK)


class Sink:
    """Keeps records in memory; fails, breaks or waits as it is told."""

    def __init__(self) -> None:
        self.groups: list[list[AuditRecord]] = []
        # What the next commits do: "ok", "fail", or "lose" (done, but the answer is lost).
        self.plan: list[str] = []
        self.is_down = False
        self.gate = asyncio.Event()
        self.gate.set()

    @property
    def records(self) -> list[AuditRecord]:
        return [record for group in self.groups for record in group]

    async def append(self, records: Sequence[AuditRecord]) -> None:
        await self.gate.wait()
        step = "fail" if self.is_down else self.plan.pop(0) if self.plan else "ok"
        if step != "fail" and any(record.request_id == "poison" for record in records):
            raise TypeError("no such type")
        known = {(type(record), record.request_id) for record in self.records}
        if step != "fail":
            self.groups.append([r for r in records if (type(r), r.request_id) not in known])
        if step != "ok":
            raise StoreError("store.unreachable", "gone")


@pytest.fixture(autouse=True)
def no_waiting_between_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_FIRST_RETRY_S", 0.0)
    monkeypatch.setattr(writer, "_LAST_RETRY_S", 0.001)


@pytest.fixture
async def sink() -> Sink:
    return Sink()


@pytest.fixture
async def log(sink: Sink) -> AsyncIterator[GroupCommitLog]:
    log = GroupCommitLog(sink, Metrics(), lambda: NOW)
    yield log
    sink.is_down = False
    sink.gate.set()
    await log.close()


async def test_a_record_is_durable_when_append_returns(log: GroupCommitLog, sink: Sink) -> None:
    await log.append(received(1))
    assert sink.records == [received(1)]


async def test_what_comes_while_a_commit_runs_is_committed_together_in_order(
    log: GroupCommitLog, sink: Sink
) -> None:
    sink.gate.clear()
    appends = [asyncio.create_task(log.append(received(number))) for number in range(600)]
    await asyncio.sleep(0)
    sink.gate.set()
    await asyncio.gather(*appends)
    assert [len(group) for group in sink.groups] == [256, 256, 88]
    assert sink.records == [received(number) for number in range(600)]


async def test_a_failed_commit_refuses_those_who_wait_at_once(
    log: GroupCommitLog, sink: Sink
) -> None:
    sink.is_down = True
    results = await asyncio.gather(
        *(log.append(received(number)) for number in range(3)), return_exceptions=True
    )
    assert [getattr(result, "code", None) for result in results] == ["audit.unavailable"] * 3
    with pytest.raises(StoreError) as caught:
        await log.append(received(9))
    assert caught.value.code == "audit.unavailable"


async def test_service_returns_with_the_store(log: GroupCommitLog, sink: Sink) -> None:
    sink.plan = ["fail"]
    with pytest.raises(StoreError):
        await log.append(received(1))
    await until(lambda: bool(sink.records))
    await log.append(received(2))
    # Nobody can tell whether its row had come through; it is never an ending without a beginning.
    assert sink.records == [received(1), _refused(1), received(2)]


async def test_a_request_refused_although_its_row_came_through_is_completed(
    log: GroupCommitLog, sink: Sink
) -> None:
    sink.plan = ["lose"]
    with pytest.raises(StoreError):
        await log.append(received(1))
    await until(lambda: len(sink.records) == 2)
    assert sink.records == [received(1), _refused(1)]


async def test_a_caller_who_left_before_the_commit_leaves_no_row(
    log: GroupCommitLog, sink: Sink
) -> None:
    sink.gate.clear()
    first, second = (asyncio.create_task(log.append(received(number))) for number in (1, 2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    log.append_soon(completed(3))
    third = asyncio.create_task(log.append(received(4)))
    await asyncio.sleep(0)
    third.cancel()
    sink.gate.set()
    await asyncio.gather(first, second)
    await until(lambda: len(sink.records) == 3)
    assert sink.records == [received(1), received(2), completed(3)]


async def test_a_caller_who_left_during_the_commit_leaves_a_completed_request(
    log: GroupCommitLog, sink: Sink
) -> None:
    sink.gate.clear()
    task = asyncio.create_task(log.append(received(1)))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    sink.gate.set()
    await until(lambda: len(sink.records) == 2)
    ending = sink.records[1]
    assert isinstance(ending, Completed)
    assert (ending.request_id, ending.outcome) == ("r1", Outcome.CANCELLED)


async def test_a_caller_who_left_between_the_commit_and_its_news_leaves_a_completed_request(
    log: GroupCommitLog, sink: Sink
) -> None:
    appending = asyncio.create_task(log.append(received(1)))

    class Leaving(list[AuditRecord]):
        """Schedules the leaving just before the writer schedules the news."""

        def append(self, group: object) -> None:
            asyncio.get_running_loop().call_soon(appending.cancel)
            super().append(group)  # type: ignore[arg-type]

    sink.groups = Leaving()  # type: ignore[assignment]
    await asyncio.wait({appending})
    assert appending.cancelled()
    await log.close()
    assert [type(record) for record in sink.records] == [Received, Completed]


async def test_a_store_that_never_answers_does_not_hold_a_request_for_ever(
    log: GroupCommitLog, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "APPEND_DEADLINE_S", 0.01)
    sink.gate.clear()
    with pytest.raises(StoreError) as caught:
        await log.append(received(1))
    assert caught.value.code == "audit.unavailable"
    sink.gate.set()
    await until(lambda: len(sink.records) == 2)
    assert sink.records == [received(1), _refused(1)]


async def test_a_record_that_cannot_be_written_takes_no_other_with_it(
    log: GroupCommitLog, sink: Sink
) -> None:
    sink.gate.clear()
    first = asyncio.create_task(log.append(received(0)))
    await asyncio.sleep(0)
    bad = Completed(request_id="poison", at=NOW, outcome=Outcome.OK)
    for record in (completed(1), bad, completed(2)):
        log.append_soon(record)
    sink.gate.set()
    await first
    await until(lambda: len(sink.records) == 3)
    assert sink.records == [received(0), completed(1), completed(2)]
    await log.append(received(3))


async def test_a_refused_record_that_cannot_be_written_leaves_no_ending_alone(
    log: GroupCommitLog, sink: Sink
) -> None:
    sink.plan = ["fail"]
    with pytest.raises(StoreError):
        await log.append(replace(received(1), request_id="poison"))
    await until(lambda: log.is_available)
    await log.append(received(2))
    assert sink.records == [received(2)]


async def test_service_returns_although_the_last_record_cannot_be_written(
    log: GroupCommitLog, sink: Sink
) -> None:
    sink.plan = ["fail"]
    log.append_soon(Completed(request_id="poison", at=NOW, outcome=Outcome.OK))
    with pytest.raises(StoreError):
        await log.append(received(1))
    await until(lambda: log.is_available)
    await log.append(received(2))
    assert received(2) in sink.records


async def test_awaited_records_alone_do_not_keep_service_away(
    log: GroupCommitLog, sink: Sink
) -> None:
    sink.plan = ["fail"]
    with pytest.raises(StoreError):
        await log.append(completed(1))
    assert log.is_available
    await log.append(received(2))


async def test_closing_writes_what_was_handed_over(sink: Sink) -> None:
    log = GroupCommitLog(sink, Metrics(), lambda: NOW)
    for number in range(1000):
        log.append_soon(completed(number))
    await log.close()
    assert sink.records == [completed(number) for number in range(1000)]
    with pytest.raises(StoreError):
        await log.append(received(1))


async def test_closing_tells_how_many_records_a_dead_store_cost(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CLOSE_DEADLINE_S", 0.01)
    metrics = Metrics()
    log = GroupCommitLog(sink, metrics, lambda: NOW)
    sink.is_down = True
    for number in range(3):
        log.append_soon(completed(number))
    with pytest.raises(StoreError, match="3 records"):
        await log.close()
    log.append_soon(completed(4))
    assert b"hisar_audit_lost_total 4.0" in metrics.render()


async def test_memory_is_bounded_while_the_store_is_away(
    log: GroupCommitLog, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MAX_PENDING", 10)
    sink.gate.clear()
    for number in range(100):
        log.append_soon(completed(number))
    assert len(log._pending) <= 10


@given(
    st.lists(st.sampled_from(["append", "soon"]), max_size=40),
    st.lists(st.sampled_from(["ok", "fail", "lose"]), max_size=40),
    st.integers(1, 8),
)
async def test_nothing_acknowledged_is_lost_and_order_is_kept_through_any_failures(
    steps: list[str], plan: list[str], group: int
) -> None:
    sink = Sink()
    sink.plan = plan
    log = GroupCommitLog(sink, Metrics(), lambda: NOW)
    acknowledged: list[AuditRecord] = []

    async def append(number: int) -> None:
        try:
            await log.append(received(number))
        except StoreError:
            return
        acknowledged.append(received(number))

    tasks: list[asyncio.Task[None]] = []
    for number, step in enumerate(steps):
        if step == "append":
            tasks.append(asyncio.create_task(append(number)))
        else:
            log.append_soon(completed(number))
            acknowledged.append(completed(number))
        if number % group == 0:
            await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    await log.close()

    assert set(acknowledged) <= set(sink.records)
    handed_over = [record for record in sink.records if record in acknowledged]
    kinds = {Received: 0, Completed: 0}
    for kind in kinds:
        numbers = [int(r.request_id[1:]) for r in handed_over if type(r) is kind]
        assert numbers == sorted(numbers)
    open_ids = {r.request_id for r in sink.records if isinstance(r, Received)}
    known_ids = {r.request_id for r in acknowledged}
    ended_ids = {r.request_id for r in sink.records if isinstance(r, Completed)}
    assert open_ids - known_ids == ended_ids - known_ids


async def test_a_full_disk_leaves_no_request_half_recorded(home: Home) -> None:
    """Whatever was refused while the disk was full is told of as that, or not at all."""
    store = await open_store("", home)
    log = GroupCommitLog(store.requests, Metrics(), lambda: NOW)
    await log.append(received(0))
    with full_disk(store):
        for number in range(1, 4):
            with pytest.raises(StoreError):
                await log.append(replace(received(number), route="more than a page" * 1000))
        log.append_soon(completed(0))
    await until(lambda: log.is_available)
    await log.append(received(4))
    log.append_soon(completed(4))
    await log.close()
    for number in range(5):
        kinds = [type(record) for record in await store.requests.find(f"r{number}")]
        assert kinds in ([], [Received, Completed])
    assert (await store.requests.find("r0"))[1] == completed(0)
    assert (await store.requests.find("r1"))[1] == _refused(1)
    await store.close()


async def test_records_of_many_requests_reach_a_real_database(home: Home) -> None:
    store = await open_store("", home)
    log = GroupCommitLog(store.requests, Metrics(), lambda: NOW)
    await asyncio.gather(*(log.append(received(number)) for number in range(100)))
    for number in range(100):
        log.append_soon(completed(number))
    await log.close()
    assert await store.requests.close_lost(NOW) == 0
    assert (await store.requests.usage_of("p")).num_requests == 100
    await store.close()


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(root=tmp_path_factory.mktemp("home"))


@contextmanager
def full_disk(store: Store) -> Iterator[None]:
    """A database that cannot grow."""

    def limit(num_pages: int) -> None:
        with store.requests._appending._writer.begin() as connection:
            connection.execute(text(f"PRAGMA max_page_count = {num_pages}"))

    limit(1)  # SQLite takes this as: no more than there are.
    yield
    limit(1_000_000)


def _refused(number: int) -> Completed:
    return Completed(
        request_id=f"r{number}", at=NOW, outcome=Outcome.REFUSED, code="audit.unavailable"
    )


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for a condition, but not for ever."""

    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 any condition
            await asyncio.sleep(0.001)
