"""The supervisor with real child processes: kept alive, let go in order, never left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from appliance.supervisor import GaveUpError, Program, Stop, supervise

_DEADLINE_S = 30.0
# Says what happens to it in the file that its first argument names.
_POLITE = """
import os, signal, sys, time
name, diary = sys.argv[1:3]
def say(word):
    with open(diary, "a") as file: file.write(f"{name} {word} {os.getpid()}\\n")
def leave(*_):
    say("leaves"); sys.exit(0)
signal.signal(signal.SIGTERM, leave)
say("lives")
while True: time.sleep(60)
"""
_STUBBORN = _POLITE.replace("signal.signal(signal.SIGTERM, leave)",
                            "signal.signal(signal.SIGTERM, lambda *_: say('refuses'))")  # fmt: skip


class Stage:
    """A folder in which programs write a common diary."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.diary = folder / "diary"
        self.told: list[str] = []

    def program(self, name: str, script: str = _POLITE, stop_within_s: float = 20.0) -> Program:
        return Program(
            name=name,
            command=(sys.executable, "-c", script, name, str(self.diary)),
            log=self.folder / f"{name}.log",
            stop_within_s=stop_within_s,
        )

    def lines(self) -> list[str]:
        return self.diary.read_text().splitlines() if self.diary.exists() else []

    def words(self) -> list[str]:
        return [line.rpartition(" ")[0] for line in self.lines()]

    def pid(self, index: int) -> int:
        return int(self.lines()[index].rpartition(" ")[2])


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_programs_are_let_go_in_reverse_order(stage: Stage) -> None:
    stop = Stop()
    running = asyncio.create_task(
        supervise([stage.program("host"), stage.program("gateway")], stop, stage.told.append)
    )
    await until(lambda: len(stage.lines()) == 2)
    stop.tell()
    await running
    assert stage.words()[2:] == ["gateway leaves", "host leaves"]
    assert stage.told == []


async def test_a_program_that_dies_is_started_again(stage: Stage) -> None:
    stop = Stop()
    running = asyncio.create_task(supervise([stage.program("gateway")], stop, stage.told.append))
    await until(lambda: len(stage.lines()) == 1)
    os.kill(stage.pid(0), signal.SIGKILL)
    await until(lambda: len(stage.lines()) == 2)
    stop.tell()
    await running
    assert stage.words() == ["gateway lives", "gateway lives", "gateway leaves"]
    assert stage.told == ["gateway was ended by SIGKILL; starting it again"]


@pytest.mark.parametrize("exit_code", [2, 66, 69, 74, 78])
async def test_a_program_that_starting_again_cannot_help_ends_the_whole(
    stage: Stage, exit_code: int
) -> None:
    hopeless = stage.program("gateway", f"raise SystemExit({exit_code})")
    with pytest.raises(GaveUpError) as gave_up:
        await supervise([stage.program("host"), hopeless], Stop(), stage.told.append)
    assert gave_up.value.exit_code == exit_code
    assert gave_up.value.program.name == "gateway"


async def test_a_program_that_does_not_leave_in_time_is_killed(stage: Stage) -> None:
    stop = Stop()
    stubborn = stage.program("gateway", _STUBBORN, stop_within_s=0.2)
    running = asyncio.create_task(supervise([stubborn], stop, stage.told.append))
    await until(lambda: len(stage.lines()) == 1)
    stop.tell()
    await running
    assert not psutil.pid_exists(stage.pid(0))
    assert stage.told == ["gateway did not end in time and was killed"]


async def test_told_twice_a_program_is_asked_twice_and_then_killed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appliance.supervisor._HURRIED_S", 0.5)
    stop = Stop()
    stubborn = stage.program("gateway", _STUBBORN, stop_within_s=600.0)
    running = asyncio.create_task(supervise([stubborn], stop, stage.told.append))
    await until(lambda: len(stage.lines()) == 1)
    stop.tell()
    await until(lambda: len(stage.lines()) == 2)
    stop.tell()
    await running
    assert stage.words() == ["gateway lives", "gateway refuses", "gateway refuses"]


async def test_what_a_program_prints_is_kept_in_its_log_and_told_apart_from_earlier_runs(
    stage: Stage,
) -> None:
    talkative = stage.program("gateway", "import sys; print('ğüş', flush=True); sys.exit(78)")
    for num_runs in (1, 2):
        with pytest.raises(GaveUpError) as gave_up:
            await supervise([talkative], Stop(), stage.told.append)
        assert gave_up.value.said == "ğüş\n"
        assert talkative.log.read_text(encoding="utf-8") == "ğüş\n" * num_runs


_SUPERVISING = """
import asyncio, sys
from pathlib import Path
from appliance.supervisor import Program, Stop, supervise
script, diary, log = sys.argv[1:]
program = Program(name="host", command=(sys.executable, "-c", script, "host", diary),
                  log=Path(log), stop_within_s=5.0)
asyncio.run(supervise([program], Stop(), print))
"""


def test_programs_leave_when_the_supervisor_is_killed(stage: Stage) -> None:
    arguments = [sys.executable, "-c", _SUPERVISING, _POLITE, str(stage.diary)]
    with subprocess.Popen([*arguments, str(stage.folder / "log")]) as supervisor:
        asyncio.run(until(lambda: len(stage.lines()) == 1))
        supervisor.kill()
    asyncio.run(until(lambda: stage.words() == ["host lives", "host leaves"]))
