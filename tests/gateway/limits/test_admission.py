"""Places: never over the limit, none lost, turns taken."""

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from appliance.errors import RequestError
from gateway.limits.admission import Admission, Place, Standing, wait_for_turn


def take(admission: Admission, key: str = "a", limit: int | None = None) -> Place:
    return admission.take(key, limit, lambda: None)


def test_a_request_is_admitted_while_there_is_room_and_waits_after() -> None:
    admission = Admission(max_in_flight=1, max_queued=1)
    first, second = take(admission), take(admission)
    assert first.standing is Standing.ADMITTED
    assert second.standing is Standing.WAITING
    admission.leave(first)
    assert second.standing is Standing.ADMITTED


def test_a_full_queue_turns_away_with_503_and_a_time_to_come_back() -> None:
    admission = Admission(max_in_flight=1, max_queued=1)
    take(admission), take(admission)
    with pytest.raises(RequestError) as refused:
        take(admission)
    assert refused.value.code == "limits.queue_full"
    assert (refused.value.status, refused.value.retry_after_s) == (503, 1.0)


def test_a_key_over_its_own_bound_gets_429_while_another_key_gets_in() -> None:
    admission = Admission(max_in_flight=9, max_queued=1)
    first = take(admission, "a", 1)
    with pytest.raises(RequestError) as refused:
        take(admission, "a", 1)
    assert refused.value.status == 429
    assert take(admission, "b", 1).standing is Standing.ADMITTED
    admission.leave(first)
    assert take(admission, "a", 1).standing is Standing.ADMITTED


def test_keys_take_turns_however_much_one_of_them_asks() -> None:
    admission = Admission(max_in_flight=1, max_queued=9)
    running = take(admission, "busy")
    busy = [take(admission, "busy") for _ in range(3)]
    quiet = take(admission, "quiet")
    order = []
    for _ in range(4):
        admission.leave(running)
        running = next(p for p in (*busy, quiet) if p.standing is Standing.ADMITTED)
        order.append(running.key)
    assert order == ["busy", "quiet", "busy", "busy"]


def test_closing_turns_the_waiting_away_and_lets_the_running_stay() -> None:
    told: list[str] = []
    admission = Admission(max_in_flight=1, max_queued=9)
    running = take(admission)
    waiting = admission.take("a", None, lambda: told.append("over"))
    admission.close()
    assert (running.standing, waiting.standing) == (Standing.ADMITTED, Standing.REJECTED)
    assert told == ["over"]
    with pytest.raises(RequestError) as refused:
        take(admission)
    assert refused.value.code == "gateway.draining"


async def test_waiting_longer_than_the_deadline_is_503() -> None:
    admission = Admission(max_in_flight=1, max_queued=1)
    take(admission)
    turn = asyncio.Event()
    place = admission.take("a", None, turn.set)
    with pytest.raises(RequestError) as refused:
        await wait_for_turn(place, turn, 0.01)
    assert refused.value.code == "limits.queue_timeout"
    assert refused.value.status == 503


async def test_a_waiting_request_goes_on_when_its_turn_comes() -> None:
    admission = Admission(max_in_flight=1, max_queued=1)
    first = take(admission)
    turn = asyncio.Event()
    place = admission.take("a", None, turn.set)
    waiting = asyncio.create_task(wait_for_turn(place, turn, 60))
    admission.leave(first)
    await waiting
    assert place.standing is Standing.ADMITTED


class AdmissionMachine(RuleBasedStateMachine):
    """Any mix of coming and going."""

    places = Bundle("places")

    def __init__(self) -> None:
        super().__init__()
        self.admission = Admission(max_in_flight=3, max_queued=4)
        self.present: list[Place] = []

    @rule(target=places, key=st.sampled_from("abc"), limit=st.sampled_from([None, 1, 2]))
    def come(self, key: str, limit: int | None) -> Place:
        before = (self.admission.num_in_flight, self.admission.num_queued)
        try:
            place = take(self.admission, key, limit)
        except RequestError:
            assert before == (self.admission.num_in_flight, self.admission.num_queued)
            return Place(key, lambda: None)
        self.present.append(place)
        if limit is not None:
            assert sum(other.key == key for other in self.present) <= limit
        return place

    @rule(place=consumes(places))
    def go(self, place: Place) -> None:
        if place in self.present:
            self.present.remove(place)
            self.admission.leave(place)
            self.admission.leave(place)

    @invariant()
    def counts_are_what_is_there(self) -> None:
        standings = [place.standing for place in self.present]
        assert self.admission.num_in_flight == standings.count(Standing.ADMITTED) <= 3
        assert self.admission.num_queued == standings.count(Standing.WAITING) <= 4

    @invariant()
    def nobody_waits_while_there_is_room(self) -> None:
        assert self.admission.num_in_flight == 3 or self.admission.num_queued == 0

    def teardown(self) -> None:
        for place in self.present:
            self.admission.leave(place)
        assert (self.admission.num_in_flight, self.admission.num_queued) == (0, 0)
        assert not self.admission._held


TestAdmissionMachine = AdmissionMachine.TestCase
TestAdmissionMachine.settings = settings(max_examples=60, deadline=None)
