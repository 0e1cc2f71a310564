"""A replica whose worker starts late, misbehaves or never comes."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from appliance.errors import EngineError
from appliance.generation import EngineEvent, Failed, Finished, TextDelta
from appliance.tokens import DetokenizeRequest
from engines.keeper import Patience, ReplicaState
from engines.placement import Room
from engines.protocol import FrameError
from engines.replica import UNLOADED, Replica
from engines.restarts import RestartPolicy
from engines.routes import Batch, Route
from engines.worker_process import WorkerOptions, arguments
from tests.engines.host_process import DEADLINE_S, request, until

QUESTION = DetokenizeRequest(model="m", token_ids=(1,))
QUICK = RestartPolicy(first_delay_s=0.01, max_delay_s=0.02, max_failed_starts=3)


class Gateway:
    """Keeps the events of each request."""

    def __init__(self) -> None:
        self.events: dict[str, list[EngineEvent]] = {}

    def deliver(self, batch: Batch) -> None:
        """Take events."""
        for request_id, event in batch:
            self.events.setdefault(request_id, []).append(event)

    def submit(self, replica: Replica, request_id: str) -> None:
        """Ask something."""
        route = Route(receiver=self, request_id=request_id)
        replica.submit(f"1:{request_id}", request(), route)

    def ending(self, request_id: str) -> EngineEvent:
        """The last event of a request."""
        return self.events[request_id][-1]

    def failure(self, request_id: str) -> str:
        """The code a request failed with."""
        ending = self.ending(request_id)
        assert isinstance(ending, Failed)
        return ending.code


@pytest.fixture
def gateway() -> Gateway:
    """Who asks."""
    return Gateway()


class Door:
    """A `ready` worker becomes ready once this is open."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> None:
        """Let workers become ready from now on."""
        self.path.touch()


@pytest.fixture
def door(tmp_path: Path) -> Door:
    """A door that is shut."""
    return Door(tmp_path / "door")


@pytest.fixture
async def start(door: Door) -> AsyncIterator[Callable[..., Replica]]:
    """Starts replicas of a scripted worker; stops them at the end."""
    started: list[Replica] = []

    def start(
        behaviour: str, room: asyncio.Future[Room] | None = None, **patience: float
    ) -> Replica:
        options = WorkerOptions(model="m", runner="scripted", path=door.path)
        command = (sys.executable, str(Path(__file__).with_name("scripted_worker.py")), behaviour)
        waits = Patience(restarts=QUICK, worker_leaves_s=0.1, **patience)
        started.append(Replica(options, waits, command, room=room))
        return started[-1]

    yield start
    for replica in started:
        await replica.stop(UNLOADED)


async def pid_of(replica: Replica) -> int:
    """The worker's process, once there is one."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            if pid := (await replica.status()).pid:
                return pid
            await asyncio.sleep(0.01)


def test_the_command_line_names_every_option() -> None:
    options = WorkerOptions(
        model="a b", runner="echo", path=Path("/x y"), context_tokens=1, num_slots=2, num_threads=3
    )
    assert " ".join(arguments(options, 7)) == (
        "--fd 7 --runner echo --model a b --path /x y --context-tokens 1 --num-slots 2"
        " --num-threads 3 --step-tokens 0 --kv-room-bytes 0 --prefix-bytes 0 --log-level info"
        " --speculation 0 --deterministic 0"
    )


async def test_requests_wait_for_a_worker_and_go_to_it_in_order(
    start: Callable[..., Replica], gateway: Gateway, door: Door
) -> None:
    replica = start("ready")
    for request_id in "abc":
        gateway.submit(replica, request_id)
    assert not gateway.events
    door.open()
    await until(lambda: len(gateway.events) == 3)
    assert list(gateway.events) == ["a", "b", "c"]
    assert gateway.events["a"] == [TextDelta(index=0, text="1:a"), gateway.ending("a")]
    assert isinstance(gateway.ending("a"), Finished)
    assert (await replica.loaded()).context_tokens == 8


async def test_a_waiting_request_is_aborted_and_never_reaches_the_worker(
    start: Callable[..., Replica], gateway: Gateway, door: Door
) -> None:
    replica = start("ready")
    gateway.submit(replica, "a")
    gateway.submit(replica, "b")
    assert replica.abort("1:a")
    assert gateway.failure("a") == "request.cancelled"
    assert not replica.abort("1:a")
    door.open()
    await until(lambda: "b" in gateway.events)
    assert len(gateway.events["a"]) == 1


async def test_a_request_waits_for_a_worker_only_so_long(
    start: Callable[..., Replica], gateway: Gateway
) -> None:
    gateway.submit(start("ready", request_waits_s=0.05), "a")
    await until(lambda: gateway.events)
    assert gateway.failure("a") == "engine.replica_starting"


async def test_a_model_without_room_starts_no_worker_and_says_why(
    start: Callable[..., Replica], gateway: Gateway
) -> None:
    room: asyncio.Future[Room] = asyncio.get_running_loop().create_future()
    replica = start("ready", room, request_waits_s=0.05)
    gateway.submit(replica, "a")
    await until(lambda: gateway.events)
    assert gateway.failure("a") == "engine.memory_busy"
    with pytest.raises(EngineError) as caught:
        await replica.ask(QUESTION)
    assert caught.value.code == "engine.memory_busy"
    status = await replica.status()
    assert (status.state, status.pid) == ("waiting", 0)


async def test_a_worker_starts_when_its_model_has_room(
    start: Callable[..., Replica], door: Door
) -> None:
    room: asyncio.Future[Room] = asyncio.get_running_loop().create_future()
    replica = start("ready", room)
    loading = asyncio.create_task(replica.loaded())
    door.open()
    room.set_result(Room(kv_bytes=1))
    await loading
    assert (await replica.status()).load_s > 0


async def test_it_is_idle_when_the_last_who_used_it_is_done(
    start: Callable[..., Replica], gateway: Gateway, door: Door
) -> None:
    replica = start("ready")
    times_idle: list[bool] = []
    replica.on_idle = lambda: times_idle.append(replica.is_busy)
    gateway.submit(replica, "a")
    loading = asyncio.create_task(replica.loaded())
    await asyncio.sleep(0)
    assert replica.is_busy
    door.open()
    await loading
    await until(lambda: "a" in gateway.events)
    assert times_idle == [False]


async def test_a_request_id_in_use_is_a_broken_protocol(
    start: Callable[..., Replica], gateway: Gateway
) -> None:
    replica = start("ready")
    gateway.submit(replica, "a")
    with pytest.raises(FrameError):
        gateway.submit(replica, "a")


async def test_a_model_that_crashes_at_each_start_is_given_up(
    start: Callable[..., Replica], gateway: Gateway
) -> None:
    replica = start("crash")
    gateway.submit(replica, "early")
    with pytest.raises(EngineError) as caught:
        await replica.loaded()
    assert caught.value.code == "engine.model_failed"
    assert replica.has_failed
    gateway.submit(replica, "late")
    assert gateway.failure("early") == gateway.failure("late") == "engine.model_failed"
    status = await replica.status()
    assert (status.state, status.restarts, status.pid) == ("failed", 3, 0)


async def test_a_model_that_is_refused_is_not_tried_again(
    start: Callable[..., Replica], gateway: Gateway
) -> None:
    replica = start("refuse")
    gateway.submit(replica, "a")
    with pytest.raises(EngineError, match="cut short") as caught:
        await replica.loaded()
    assert caught.value.code == gateway.failure("a") == "model.broken"
    assert (await replica.status()).restarts == 0


@pytest.mark.parametrize("behaviour", ["silent", "garbage"])
async def test_a_worker_that_never_becomes_ready_is_killed_and_counted(
    start: Callable[..., Replica], behaviour: str
) -> None:
    replica = start(behaviour, ready_s=0.3)
    first = psutil.Process(await pid_of(replica))
    with pytest.raises(EngineError):
        await replica.loaded()
    assert not first.is_running()
    assert (await replica.status()).restarts == 3


async def test_a_program_that_cannot_be_started_is_a_failed_start(door: Door) -> None:
    options = WorkerOptions(model="m", runner="scripted", path=door.path)
    replica = Replica(options, Patience(restarts=QUICK), (str(door.path / "missing"),))
    with pytest.raises(EngineError) as caught:
        await replica.loaded()
    assert caught.value.code == "engine.model_failed"
    await replica.stop(UNLOADED)


async def test_a_lost_worker_fails_what_it_had_begun(
    start: Callable[..., Replica], gateway: Gateway
) -> None:
    replica = start("deaf")
    await replica.loaded()
    gateway.submit(replica, "a")
    psutil.Process(await pid_of(replica)).kill()
    await until(lambda: gateway.events)
    assert gateway.failure("a") == "engine.replica_lost"
    await replica.loaded()
    assert (await replica.status()).restarts == 1


async def test_a_question_waits_for_a_worker_only_so_long(start: Callable[..., Replica]) -> None:
    with pytest.raises(EngineError) as caught:
        await start("ready", request_waits_s=0.05).ask(QUESTION)
    assert caught.value.code == "engine.replica_starting"


async def test_a_lost_worker_and_a_stop_fail_the_questions_they_leave_open(
    start: Callable[..., Replica],
) -> None:
    replica = start("deaf")
    await replica.loaded()
    lost = asyncio.create_task(replica.ask(QUESTION))
    await until(lambda: replica._questions)
    psutil.Process(await pid_of(replica)).kill()
    with pytest.raises(EngineError) as caught:
        await lost
    assert caught.value.code == "engine.replica_lost"
    unloaded = asyncio.create_task(replica.ask(QUESTION))
    await until(lambda: replica._questions)
    await replica.stop(UNLOADED)
    with pytest.raises(EngineError) as caught:
        await unloaded
    assert caught.value.code == "engine.model_unloaded"


async def test_a_question_that_nobody_waits_for_is_forgotten(
    start: Callable[..., Replica],
) -> None:
    replica = start("deaf")
    await replica.loaded()
    asking = asyncio.create_task(replica.ask(QUESTION))
    await until(lambda: replica._questions)
    asking.cancel()
    await asyncio.wait({asking})
    assert not replica._questions


async def test_a_worker_too_busy_to_answer_does_not_hold_up_the_status(
    start: Callable[..., Replica],
) -> None:
    replica = start("deaf", status_s=0.05)
    await replica.loaded()
    status = await replica.status()
    assert status.state == ReplicaState.READY
    assert status.resident_bytes > 0


async def test_stopping_fails_what_runs_and_ends_a_worker_that_will_not_leave(
    start: Callable[..., Replica], gateway: Gateway
) -> None:
    replica = start("deaf")
    await replica.loaded()
    worker = psutil.Process(await pid_of(replica))
    gateway.submit(replica, "running")
    await replica.stop(UNLOADED)
    assert not worker.is_running()
    gateway.submit(replica, "late")
    assert gateway.failure("running") == gateway.failure("late") == "engine.model_unloaded"
    with pytest.raises(EngineError):
        await replica.loaded()


async def test_draining_before_the_worker_is_ready_does_not_wait_for_it(
    start: Callable[..., Replica], gateway: Gateway
) -> None:
    replica = start("ready")
    gateway.submit(replica, "a")
    await replica.drain(within_s=3600)
    assert gateway.failure("a") == "engine.draining"
    assert (await replica.status()).state == "stopped"


async def test_a_gateway_that_is_gone_takes_its_requests_with_it(
    start: Callable[..., Replica], gateway: Gateway, door: Door
) -> None:
    replica, other = start("ready"), Gateway()
    gateway.submit(replica, "a")
    replica.submit("2:a", request(), Route(receiver=other, request_id="a"))
    replica.abort_all_of(gateway)
    assert gateway.failure("a") == "request.cancelled"
    door.open()
    await until(lambda: other.events)
    assert isinstance(other.ending("a"), Finished)
