"""A model that does not fit is refused with both numbers; those idle for longest go first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.errors import EngineError
from appliance.footprint import Footprint
from engines.placement import Occupant, choose_evictions, grant_room, require_room

GIB = 1024**3


def test_a_model_that_fits_exactly_is_let_in() -> None:
    require_room("m", needed_bytes=GIB, free_bytes=GIB)


def test_a_refusal_names_what_is_needed_and_what_is_free() -> None:
    with pytest.raises(EngineError, match="'m' needs 2048 MiB of memory and 1024 MiB are") as e:
        require_room("m", needed_bytes=2 * GIB, free_bytes=GIB)
    assert e.value.code == "engine.does_not_fit"


def occupant(model: str, held_bytes: int, idle_since: float) -> Occupant:
    return Occupant(model=model, held_bytes=held_bytes, idle_since=idle_since)


def test_those_idle_for_longest_go_and_no_more_than_needed() -> None:
    idle = [occupant("new", 5, 9.0), occupant("old", 5, 1.0), occupant("older", 1, 0.5)]
    assert choose_evictions(idle, 6) == ("older", "old")
    assert choose_evictions(idle, 7) == ("older", "old", "new")
    assert choose_evictions(idle, 0) == ()


def test_nobody_goes_where_all_together_would_not_be_enough() -> None:
    assert choose_evictions([occupant("a", 5, 1.0), occupant("b", 5, 2.0)], 11) == ()


def test_prefixes_get_a_share_of_what_is_left_over_and_slots_the_rest() -> None:
    need = Footprint(
        worker_bytes=10, weights_bytes=50, kv_bytes=40, context_tokens=256, num_slots=1
    )
    room = grant_room(need, free_bytes=900, prefix_share=0.125)
    assert (room.kv_bytes, room.prefix_bytes) == (40 + 700, 100)
    assert grant_room(need, free_bytes=900, prefix_share=0.0).kv_bytes == 840
    assert grant_room(need, free_bytes=100, prefix_share=0.5).prefix_bytes == 0


def test_a_model_without_keys_and_values_needs_no_room_for_prefixes() -> None:
    need = Footprint(weights_bytes=50, kv_bytes=0, context_tokens=256, num_slots=1)
    assert grant_room(need, free_bytes=2 * GIB, prefix_share=0.5).prefix_bytes == 0


@given(st.lists(st.tuples(st.integers(1, 99), st.floats(0, 99)), max_size=8), st.integers(1, 300))
def test_what_goes_is_enough_and_without_the_last_it_would_not_be(
    holdings: list[tuple[int, float]], missing_bytes: int
) -> None:
    idle = [occupant(str(i), held, since) for i, (held, since) in enumerate(holdings)]
    held_by = {each.model: each.held_bytes for each in idle}
    chosen = choose_evictions(idle, missing_bytes)
    if not chosen:
        assert sum(held_by.values()) < missing_bytes
    else:
        freed = [held_by[model] for model in chosen]
        assert sum(freed[:-1]) < missing_bytes <= sum(freed)
