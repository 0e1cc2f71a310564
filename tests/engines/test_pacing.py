"""A step beside streams is given a time; how many prompt tokens that is is learnt."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.generation import SamplingParams
from engines.pacing import PromptPace
from engines.runner import Chunk, StepPlan
from engines.sequence import Sequence


def plan(num_decodes: int, *prompt_lengths: int) -> StepPlan:
    def chunk(length: int) -> Chunk:
        sequence = Sequence(
            request_id="r",
            index=0,
            num_prompt_tokens=length,
            token_ids=[0] * length,
            max_tokens=1,
            sampling=SamplingParams(),
            seed=0,
        )
        return Chunk(sequence=sequence, start=0, length=length, samples=True)

    return StepPlan(chunks=tuple(map(chunk, (*[1] * num_decodes, *prompt_lengths))))


class Machine:
    """Takes so long for a step of decodes, and for each token of a prompt."""

    def __init__(self, decode_s: float, token_s: float) -> None:
        self.decode_s, self.token_s = decode_s, token_s

    def seconds(self, step: StepPlan) -> float:
        has_decodes = any(chunk.length == 1 for chunk in step.chunks)
        num_prompt = sum(chunk.length for chunk in step.chunks if chunk.length > 1)
        return self.decode_s * has_decodes + self.token_s * num_prompt


def run(pace: PromptPace, machine: Machine, num_steps: int = 12) -> float:
    """Steps with a prompt as long as the pace allows; how long the last one took."""
    seconds = 0.0
    for _ in range(num_steps):
        pace.observe(plan(8), machine.seconds(plan(8)))
        step = plan(8, pace.num_tokens)
        seconds = machine.seconds(step)
        pace.observe(step, seconds)
    return seconds


@given(decode_s=st.floats(0.001, 0.19), token_s=st.floats(0.00001, 0.01))
def test_a_step_takes_the_time_it_is_given(decode_s: float, token_s: float) -> None:
    took = run(PromptPace(0.4), Machine(decode_s, token_s))
    assert took <= 0.4 + 1e-6
    assert took >= 0.4 - 2 * token_s


def test_where_decodes_take_all_the_time_prompts_get_as_much_again() -> None:
    assert run(PromptPace(0.4), Machine(0.5, 0.001)) == pytest.approx(1.0, rel=0.01)


def test_a_very_slow_machine_still_moves_prompts_on() -> None:
    assert run(PromptPace(0.4), Machine(0.01, 1.0)) == pytest.approx(16.01)


def test_one_disturbed_step_changes_nothing() -> None:
    pace, machine = PromptPace(0.4), Machine(0.05, 0.003)
    run(pace, machine)
    before = pace.num_tokens
    pace.observe(plan(8, 100), 30.0)
    pace.observe(plan(8), 9.0)
    assert pace.num_tokens == before


def test_a_machine_that_becomes_slower_is_followed() -> None:
    pace = PromptPace(0.4)
    run(pace, Machine(0.05, 0.001))
    taken = [run(pace, Machine(0.05, 0.01), 1) for _ in range(6)]
    assert all(later <= earlier for earlier, later in pairwise(taken))
    assert taken[-1] == pytest.approx(0.4, abs=0.01)


def test_what_tells_nothing_is_not_learnt_from() -> None:
    pace = PromptPace(0.4)
    pace.observe(plan(8, 100), 5.0)  # no decode known yet to take off
    pace.observe(plan(0, 3), 5.0)  # too few to tell what one costs
    assert pace.num_tokens == PromptPace(0.4).num_tokens
    pace.observe(plan(0, 100), 0.1)
    assert pace.num_tokens == 400
