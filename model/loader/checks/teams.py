"""The team tree, and who owns which namespace."""

from collections.abc import Iterator

from model.kinds import Team
from model.loader.declarations import Declarations, Declared
from model.problem import Code, Problem


def team_cycles(declarations: Declarations) -> Iterator[Problem]:
    """Teams that are their own ancestor, once a cycle, at its first team by name."""
    parents = {name: team.value.spec.parent for name, team in declarations.teams.items()}
    settled: set[str] = set()
    for start in sorted(parents):
        trail: dict[str, int] = {}
        name: str | None = start
        while name in parents and name not in settled and name not in trail:
            trail[name] = len(trail)
            name = parents[name]
        if name in trail:
            cycle = list(trail)[trail[name] :]
            first = min(cycle)
            round_trip = " -> ".join([*cycle[cycle.index(first) :], *cycle[: cycle.index(first)], first])
            yield declarations.teams[first].problem(
                ("spec", "parent"), f"the team is its own ancestor: {round_trip}", Code.CYCLE
            )
        settled.update(trail)


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
