"""How patient Pilothouse is. Every duration is in seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """The timing rules that the planner works by.

    Attributes:
        report_ttl: A node whose last report is older than this is silent: its processes become UNKNOWN.
        start_deadline: From STARTING to READY, unless the deployment sets its own.
        launch_deadline: From PENDING to a start that the node acknowledged.
        unhealthy_after: Probe failures must last this long before READY becomes UNHEALTHY.
        unhealthy_patience: UNHEALTHY for longer than this ends in a stop.
        stop_grace: Between TERM and KILL.
        stop_kill: From KILL to the last look.
        backoff_base: Delay before the second attempt; doubles with each further one.
        backoff_cap: The longest delay between attempts.
        healthy_reset: READY for this long forgets earlier failures.
        max_attempts: Attempts in a row before a replica is FAILED.
        look_active: How soon to look again while something moves.
        look_steady: How soon to look again when all is as wished.
    """

    report_ttl: float = 15.0
    start_deadline: float = 1800.0
    launch_deadline: float = 60.0
    unhealthy_after: float = 5.0
    unhealthy_patience: float = 60.0
    stop_grace: float = 10.0
    stop_kill: float = 10.0
    backoff_base: float = 2.0
    backoff_cap: float = 300.0
    healthy_reset: float = 600.0
    max_attempts: int = 5
    look_active: float = 1.0
    look_steady: float = 5.0

    def backoff(self, failures: int) -> float:
        """Delay before the next attempt after `failures` failures in a row (1 or more)."""
        return min(self.backoff_cap, self.backoff_base * 2.0 ** max(0, failures - 1))
