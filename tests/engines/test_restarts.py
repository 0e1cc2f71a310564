"""How long a replica waits before it is started again, and when it is given up."""

from engines.restarts import RestartPolicy, Restarts

POLICY = RestartPolicy(first_delay_s=0.1, max_delay_s=30.0, stable_s=10.0, max_failed_starts=5)


def test_the_delay_doubles_up_to_its_cap() -> None:
    restarts = Restarts(policy=POLICY)
    delays = [restarts.after_death(ready_for_s=1.0) for _ in range(12)]
    assert delays[:4] == [0.1, 0.2, 0.4, 0.8]
    assert delays[-1] == 30.0
    assert restarts.num_deaths == 12


def test_the_delay_starts_over_after_a_stable_life() -> None:
    restarts = Restarts(policy=POLICY)
    for _ in range(6):
        restarts.after_death(ready_for_s=1.0)
    assert restarts.after_death(ready_for_s=10.0) == 0.1
    assert restarts.after_death(ready_for_s=1.0) == 0.2


def test_a_model_that_never_becomes_ready_is_given_up() -> None:
    restarts = Restarts(policy=POLICY)
    delays = [restarts.after_death(ready_for_s=None) for _ in range(5)]
    assert None not in delays[:4]
    assert delays[4] is None


def test_a_start_that_succeeds_forgives_the_failed_ones() -> None:
    restarts = Restarts(policy=POLICY)
    for _ in range(4):
        restarts.after_death(ready_for_s=None)
    restarts.after_death(ready_for_s=0.5)
    assert restarts.after_death(ready_for_s=None) is not None


def test_a_replica_that_is_killed_for_ever_is_restarted_for_ever() -> None:
    restarts = Restarts(policy=POLICY)
    assert all(restarts.after_death(ready_for_s=0.01) is not None for _ in range(5000))
