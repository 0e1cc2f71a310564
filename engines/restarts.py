"""When a worker that died is started again, and when the host stops trying.

The delay doubles with each death that follows the last one soon, and starts over once a worker
has lived long enough. Only deaths before readiness count towards giving up: a worker that ran its
first step has shown that the model itself can be loaded.
"""

from msgspec import Struct


class RestartPolicy(Struct, frozen=True, kw_only=True):
    """The bounds of restarting, in seconds and in failures in a row."""

    first_delay_s: float = 0.1
    max_delay_s: float = 30.0
    stable_s: float = 10.0
    max_failed_starts: int = 5


class Restarts(Struct, kw_only=True):
    """The deaths of one replica's workers so far."""

    policy: RestartPolicy = RestartPolicy()
    num_deaths: int = 0
    num_deaths_in_row: int = 0
    num_failed_starts: int = 0

    def after_death(self, *, ready_for_s: float | None) -> float | None:
        """Seconds to wait before the next start; None: give up.

        `ready_for_s` is how long the worker was ready, None when it never was.
        """
        self.num_deaths += 1
        self.num_failed_starts = self.num_failed_starts + 1 if ready_for_s is None else 0
        if ready_for_s is not None and ready_for_s >= self.policy.stable_s:
            self.num_deaths_in_row = 0
        self.num_deaths_in_row += 1
        if self.num_failed_starts >= self.policy.max_failed_starts:
            return None
        doubled = self.policy.first_delay_s * 2.0 ** min(self.num_deaths_in_row - 1, 30)
        return min(doubled, self.policy.max_delay_s)
