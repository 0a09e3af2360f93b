"""Cases as they are written: what is null or absent has its default."""

from typing import Any

from tests.conformance.cases import Case, Runner

DEFAULTS: Case = {
    "actions": (),
    "assignment_usage": {},
    "cohorts": (),
    "config": {},
    "delete_between": (),
    "flavor_fungibility": {},
    "flavors": (),
    "local_queues": (),
    "namespaces": (),
    "pod_sets": (),
    "other_cluster_queue": None,
    "other_usage": {},
    "simulated_preemption": (),
    "simulated_preemption_default": {"possibility": "Preempt", "borrow_after": 0},
    "strategy": "BestEffortFIFO",
    "usage": {},
    "workloads": (),
}


def completed(run: Runner) -> Runner:
    """The runner, for cases that leave out what has a default or write null for it. `expect` stays as it is."""

    def of(case: Case) -> Any:
        return run({**DEFAULTS, **{key: plain(value) for key, value in case.items() if value is not None}})

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items() if each is not None}
        return [plain(each) for each in value] if isinstance(value, list) else value

    return of
