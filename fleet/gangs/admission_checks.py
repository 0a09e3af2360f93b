"""Admission checks: what others have to say before a gang with quota may start (Kueue's AdmissionCheck).

They write their answers into the Workload's status; a check that nobody has answered yet is pending. Machines are
bought meanwhile: a check is a reason to wait with the start, not with the purchase.
"""

from collections.abc import Mapping
from itertools import chain
from typing import Final

from fleet.reasons import Reason
from fleet.snapshot import Check, CheckState, Gang
from model.fleet import Fleet

_Flavors = Mapping[str, tuple[str, ...]]
"""Pod set -> flavors."""
RETRY_PAUSE_S: Final = 60.0
"""Before a gang is considered again whose check wants that and does not say when."""


def checks_of(fleet: Fleet, gang: Gang, flavors: _Flavors | None = None) -> tuple[str, ...]:
    """Returns the names of the checks that a gang with `flavors` has to pass: those of its queue, in its order.

    A queue of ours asks for its checks whatever the flavor. A ClusterQueue, behind a LocalQueue of the gang's
    namespace, asks for those of the flavors that were given.
    """
    if (queue := fleet.queues.get(gang.queue)) is not None:
        return queue.spec.admission_checks
    local = fleet.local_queues.get(f"{gang.namespace}/{gang.queue}")
    if local is None:
        return ()
    found = fleet.cluster_queues[local.spec.cluster_queue]
    given = chain.from_iterable((gang.flavors if flavors is None else flavors).values())
    wanted = {check for flavor in given for check in found.spec.checks_for(flavor)}
    return tuple(rule.name for rule in found.spec.admission_checks_strategy.admission_checks if rule.name in wanted)


def open_checks(fleet: Fleet, gang: Gang, flavors: _Flavors | None = None) -> str:
    """Returns the sentence about checks that are not ready; empty when none keeps the gang from starting.

    `flavors`: those that it is about to get; None = those that it has.
    """
    waiting = [(name, _answer(gang, name)) for name in checks_of(fleet, gang, flavors)]
    parts = [
        f"{name} ({check.state}{f': {check.message}' if check.message else ''})"
        for name, check in waiting
        if check.state is not CheckState.READY
    ]
    return f"waits for admission checks: {', '.join(parts)}" if parts else ""


def verdict(fleet: Fleet, gang: Gang) -> tuple[Reason, str] | None:
    """Returns why a gang has to give back what it holds: a check has rejected it, or wants it to try again later."""
    if not gang.checks:
        return None
    for state, reason, verb in (
        (CheckState.REJECTED, Reason.CHECK_REJECTED, "has rejected it"),
        (CheckState.RETRY, Reason.CHECK_RETRY, "wants it to try again"),
    ):
        for name in checks_of(fleet, gang):
            check = _answer(gang, name)
            if check.state is state:
                return reason, f"admission check {name} {verb}" + (f": {check.message}" if check.message else "")
    return None


def retry_pause_s(fleet: Fleet, gang: Gang) -> float:
    """Returns how long (s) the gang waits for the checks that want it to try again: the longest of their pauses."""
    answers = (_answer(gang, name) for name in checks_of(fleet, gang))
    asked = [check.requeue_after_s for check in answers if check.state is CheckState.RETRY]
    return max(asked, default=0.0) or RETRY_PAUSE_S


def _answer(gang: Gang, name: str) -> Check:
    return gang.checks.get(name) or Check(CheckState.PENDING)
