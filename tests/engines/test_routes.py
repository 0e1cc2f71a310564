"""Each event goes to whoever asked, once, and nothing follows an ending."""

from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.generation import Failed, Finished, GenerationEvent, TextDelta, Usage
from engines.routes import Batch, Route, Routes

ENDINGS: tuple[GenerationEvent, ...] = (
    Finished(usage=Usage()),
    Failed(code="engine.replica_lost", message="gone"),
)


class Gateway:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def deliver(self, batch: Batch) -> None:
        """Take events."""
        self.batches.append(batch)


def test_events_of_one_step_reach_each_gateway_in_one_batch() -> None:
    routes, first, second = Routes(), Gateway(), Gateway()
    routes.add("1:a", Route(receiver=first, request_id="a"))
    routes.add("2:a", Route(receiver=second, request_id="a"))
    routes.add("1:b", Route(receiver=first, request_id="b"))
    delta = TextDelta(index=0, text="x")
    routes.deliver([("1:a", delta), ("2:a", delta), ("1:b", delta), ("3:unknown", delta)])
    assert first.batches == [[("a", delta), ("b", delta)]]
    assert second.batches == [[("a", delta)]]


events = st.sampled_from([TextDelta(index=0, text="x"), *ENDINGS])


@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(st.sampled_from(["1:a", "1:b", "2:a"]), events), max_size=6)))
def test_every_request_gets_its_events_up_to_its_first_ending(steps: list[Batch]) -> None:
    routes, gateways = Routes(), {"1": Gateway(), "2": Gateway()}
    for key in ("1:a", "1:b", "2:a"):
        number, _, request_id = key.partition(":")
        routes.add(key, Route(receiver=gateways[number], request_id=request_id))
    for step in steps:
        routes.deliver(step)
    for key in ("1:a", "1:b", "2:a"):
        number, _, request_id = key.partition(":")
        said = [event for step in steps for name, event in step if name == key]
        num_until_ending = next((i + 1 for i, e in enumerate(said) if e in ENDINGS), len(said))
        batches = gateways[number].batches
        assert [e for b in batches for name, e in b if name == request_id] == said[
            :num_until_ending
        ]
        assert (key in routes) == (not any(event in ENDINGS for event in said))
