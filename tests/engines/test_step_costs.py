"""What a drafted token costs, learnt from times that are not steady."""

import pytest

from engines.step_costs import StepCosts


def learn(costs: StepCosts, *times: tuple[int, float], num_sequences: int = 1) -> None:
    for num_drafts, seconds in times:
        costs.observe(num_sequences, num_drafts, seconds)


def test_nothing_is_known_before_a_plain_step() -> None:
    costs = StepCosts()
    assert costs.of_draft(1) is None
    learn(costs, (7, 5.0))
    assert costs.of_draft(1) is None
    learn(costs, (0, 1.0))
    assert costs.of_draft(1) == pytest.approx(0.5)
    assert costs.of_draft(2) is None


def test_a_first_guess_is_a_part_of_a_sequences_share() -> None:
    costs = StepCosts()
    learn(costs, (0, 1.0), num_sequences=8)
    assert costs.of_draft(8) == pytest.approx(0.5 / 8)


def test_costs_are_shares_of_a_plain_step() -> None:
    costs = StepCosts()
    learn(costs, (0, 2.0), *[(10, 6.0)] * 5)
    assert costs.of_draft(1) == pytest.approx(0.2)


def test_a_disturbed_step_does_not_count() -> None:
    costs = StepCosts()
    learn(costs, *[(0, 1.0)] * 3, (0, 9.0), *[(10, 3.0)] * 3, (10, 10.9), (10, 0.9))
    assert costs.of_draft(1) == pytest.approx(0.2)


def test_a_machine_that_became_slower_is_measured_anew() -> None:
    costs = StepCosts()
    learn(costs, (0, 1.0), *[(4, 2.0)] * 5)
    learn(costs, (4, 20.0))
    assert costs.of_draft(1) is None
    learn(costs, (0, 10.0))
    assert costs.of_draft(1) == pytest.approx(0.25)


def test_a_plain_step_is_taken_now_and_then() -> None:
    costs = StepCosts()
    learn(costs, (0, 1.0))
    num_steps = 0
    while costs.of_draft(1) is not None:
        learn(costs, (4, 2.0))
        num_steps += 1
    assert 8 <= num_steps <= 64


def test_a_cost_that_kept_drafts_away_is_found_anew_after_a_while() -> None:
    costs = StepCosts()
    learn(costs, (0, 1.0), *[(1, 1.9)] * 8)
    assert costs.of_draft(1) == pytest.approx(0.9)
    learn(costs, *[(0, 1.0)] * 300)
    assert costs.of_draft(1) == pytest.approx(0.5)
