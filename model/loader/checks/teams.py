"""The team tree, and who owns which namespace."""

from collections.abc import Iterator
from typing import Any

from model.kinds import Team
from model.loader.checks.cycles import cycles
from model.loader.declarations import Declarations, Declared
from model.problem import Code, Problem


def team_cycles(declarations: Declarations) -> Iterator[Problem]:
    """Teams that are their own ancestor, once a cycle, at its first team by name."""
    parents = {name: team.value.spec.parent for name, team in declarations.teams.items()}
    for cycle in cycles(parents):
        message = f"the team is its own ancestor: {' -> '.join(cycle)}"
        yield declarations.teams[cycle[0]].problem(("spec", "parent"), message, Code.CYCLE)


def queues_of_others(declarations: Declarations) -> Iterator[Problem]:
    """A queue that is another team's: work in this team's namespaces may not use it."""
    for name, team in sorted(declarations.teams.items()):
        spec = team.value.spec
        named = {"defaultQueue": spec.default_queue, "ordinaryPodsQueue": spec.ordinary_pods_queue}
        for field, queue_name in named.items():
            queue = declarations.queues.get(queue_name or "")
            if queue is not None and queue.value.spec.team != name:
                message = f"the queue {queue.value.name!r} is of team {queue.value.spec.team!r} ({queue.place})"
                yield team.problem(("spec", field), message, Code.INVALID_VALUE, hint="name a queue of this team")


def queues_past_fences(declarations: Declarations) -> Iterator[Problem]:
    """Queues that take jobs of a fenced namespace and have quota that is not the team's: its fence knows none of it."""
    for name, team in sorted(declarations.teams.items()):
        spec = team.value.spec
        if not spec.hard_fence:
            continue
        local = [it for _, it in sorted(declarations.local_queues.items())]
        past: list[tuple[str, Declared[Any]]] = [
            *(("LocalQueue", it) for it in local if it.value.metadata.namespace in spec.namespaces),
            *(("Volcano queue", it) for _, it in sorted(declarations.volcano_queues.items())),
        ]
        for kind, queue in past[:1]:
            which = f"the {kind} {queue.value.name!r} ({queue.place})"
            message = f"jobs in the namespaces of team {name!r} may use {which} as well, whose quota is not the team's"
            hint = "fence only namespaces whose jobs use Queues of their team"
            yield team.problem(("spec", "hardFence"), message, Code.INVALID_VALUE, hint=hint)


def namespaces_claimed_twice(declarations: Declarations) -> Iterator[Problem]:
    """A namespace in the lists of two teams, or twice in one."""
    owners: dict[str, Declared[Team]] = {}
    for _, team in sorted(declarations.teams.items()):
        for index, namespace in enumerate(team.value.spec.namespaces):
            owner = owners.get(namespace)
            if owner is None:
                owners[namespace] = team
            else:
                where = f"team {owner.value.name!r} ({owner.place})"
                message = f"the namespace {namespace!r} already belongs to {where}"
                yield team.problem(("spec", "namespaces", index), message, Code.NAMESPACE_CLAIMED_TWICE)
