"""Chains of parents that come back to where they started."""

from collections.abc import Iterator, Mapping


def cycles(parents: Mapping[str, str | None]) -> Iterator[list[str]]:
    """Each cycle once, from its first name round to that name again, in the order in which sorted names lead to it.

    `parents` has child -> parent; a parent that is no key, or None, ends a chain.
    """
    settled: set[str] = set()
    for start in sorted(parents):
        trail: dict[str, int] = {}
        name: str | None = start
        while name is not None and name in parents and name not in settled and name not in trail:
            trail[name] = len(trail)
            name = parents[name]
        if name is not None and name in trail:
            cycle = list(trail)[trail[name] :]
            first = min(cycle)
            yield [*cycle[cycle.index(first) :], *cycle[: cycle.index(first)], first]
        settled.update(trail)
