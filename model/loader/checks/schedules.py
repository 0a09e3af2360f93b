"""Windows: cron that parses and fires, and an end to each."""

from collections.abc import Iterator

from model.cron import Cron, InvalidCron
from model.kinds import NEVER
from model.kinds.base import Kind
from model.loader.declarations import Declarations, Declared
from model.loader.tree import Path
from model.problem import Code, Problem

_SOME_INSTANT_S = 1_767_225_600.0  # 2026-01-01; whether a schedule ever fires does not depend on it


def invalid_windows(declarations: Declarations) -> Iterator[Problem]:
    """Reports schedules of budgets, freeze and allow windows that never open or never close."""
    for pool in declarations.node_pools.values():
        for index, budget in enumerate(pool.value.spec.disruption.budgets):
            if budget.duration is not None:
                yield from _window(pool, ("spec", "disruption", "budgets", index), budget.schedule, budget.duration)
    for policy in declarations.policies.values():
        spec = policy.value.spec
        for key, windows in (("freezeWindows", spec.freeze_windows), ("allowWindows", spec.allow_windows)):
            for index, window in enumerate(windows):
                yield from _window(policy, ("spec", key, index), window.schedule, window.duration)


def _window(source: Declared[Kind], path: Path, schedule: str, duration_s: float) -> Iterator[Problem]:
    try:
        cron = Cron.parse(schedule)
    except InvalidCron as error:
        yield source.problem((*path, "schedule"), str(error), Code.INVALID_SCHEDULE)
        return
    if cron.next_after(_SOME_INSTANT_S) is None:
        yield source.problem((*path, "schedule"), f"{schedule!r} never fires: no such date", Code.INVALID_SCHEDULE)
    if duration_s in {0.0, NEVER}:
        message = "a window needs a duration with an end" if duration_s else "a window of no length does nothing"
        yield source.problem((*path, "duration"), message, Code.INVALID_SCHEDULE)
