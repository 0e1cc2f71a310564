"""A model that does not fit is refused with both numbers."""

import pytest

from appliance.errors import EngineError
from engines.placement import WORKER_BYTES, needed_bytes, require_room

GIB = 1024**3


def test_weights_keys_and_values_and_the_worker_itself_are_counted() -> None:
    assert needed_bytes(weights_bytes=100, kv_bytes=20) == WORKER_BYTES + 120


def test_a_model_that_fits_exactly_is_let_in() -> None:
    require_room("m", needed=GIB, free=GIB)


def test_a_refusal_names_what_is_needed_and_what_is_free() -> None:
    with pytest.raises(
        EngineError, match="'m' needs 2048 MiB of memory and 1024 MiB are free"
    ) as e:
        require_room("m", needed=2 * GIB, free=GIB)
    assert e.value.code == "engine.does_not_fit"
