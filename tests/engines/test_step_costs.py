"""What a drafted token costs, learnt from times that are not steady."""

from random import Random

import pytest

from engines.step_costs import StepCosts


def learn(costs: StepCosts, *times: tuple[int, float], num_sequences: int = 1) -> None:
    for num_drafts, seconds in times:
        costs.observe(num_sequences, num_drafts, seconds)


def known(num_sequences: int = 1) -> StepCosts:
    """Costs of a machine that takes a second for a step without drafts."""
    costs = StepCosts()
    learn(costs, *[(0, 1.0)] * 20, num_sequences=num_sequences)
    return costs


def test_nothing_is_known_before_some_plain_steps() -> None:
    costs = StepCosts()
    assert costs.of_draft(1) is None
    learn(costs, (7, 5.0), (0, 1.0))
    assert costs.of_draft(1) is None
    assert known().of_draft(1) == pytest.approx(0.5)
    assert known().of_draft(2) is None


def test_beside_others_a_first_guess_is_most_of_a_sequences_share() -> None:
    assert known(num_sequences=8).of_draft(8) == pytest.approx(0.8 / 8)


def test_costs_are_shares_of_a_plain_step() -> None:
    costs = known()
    learn(costs, *[(10, 3.0)] * 8)
    assert costs.of_draft(1) == pytest.approx(0.2, abs=0.03)


def test_nothing_is_free() -> None:
    costs = known()
    learn(costs, *[(10, 0.5)] * 15)
    cost = costs.of_draft(1)
    assert cost is not None
    assert cost > 0


@pytest.mark.parametrize("true_cost", [0.05, 0.2, 0.45])
def test_disturbed_steps_hide_the_cost_only_in_part(true_cost: float) -> None:
    """Steps that take up to twice as long, and now and then ten times."""
    for seed in range(20):
        rng, costs = Random(seed), StepCosts()  # noqa: S311

        def took(seconds: float, rng: Random = rng) -> float:
            return seconds * (1 + rng.random()) * (10 if rng.random() < 0.03 else 1)

        for _ in range(200):
            num_drafts = 0 if costs.of_draft(1) is None else rng.choice((1, 3, 7, 15))
            learn(costs, (num_drafts, took(1.0 + true_cost * num_drafts)))
        learn(costs, *((0, took(1.0)) for _ in range(4)))
        cost = costs.of_draft(1)
        assert cost is not None
        assert true_cost / 2 < cost < 2 * true_cost + 0.1


def test_doubt_counts_against_drafts() -> None:
    steady, shaky = known(), StepCosts()
    learn(shaky, *[(0, 0.6), (0, 1.4)] * 10)
    for costs in (steady, shaky):
        learn(costs, *[(2, 1.4)] * 4)
    assert (shaky.of_draft(1) or 0) > (steady.of_draft(1) or 0) + 0.02


def test_a_machine_that_became_slower_is_measured_anew() -> None:
    costs = known()
    learn(costs, *[(4, 2.0)] * 8, (4, 20.0))
    assert costs.of_draft(1) is None
    learn(costs, *[(0, 10.0)] * 50)
    assert costs.of_draft(1) == pytest.approx(0.25, abs=0.05)


def test_a_plain_step_is_taken_now_and_then() -> None:
    costs = known()
    num_steps = 0
    while costs.of_draft(1) is not None:
        learn(costs, (4, 2.0))
        num_steps += 1
    assert 8 <= num_steps <= 64


def test_a_cost_that_kept_drafts_away_is_found_anew_after_a_while() -> None:
    costs = known()
    learn(costs, *[(1, 1.9)] * 12)
    assert costs.of_draft(1) == pytest.approx(0.8, abs=0.1)
    learn(costs, *[(0, 1.0)] * 300)
    assert costs.of_draft(1) == pytest.approx(0.5)
