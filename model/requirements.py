"""`Requirements`: which labels something must have, and whether two sides can meet.

Semantics are Karpenter's (`pkg/scheduling/requirements.go`, v1.14). All values are immutable and hashable, so equal
pods and equal offers group by their requirements.
"""

from collections.abc import ItemsView, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Self

from model.kinds.base import RequirementTerm
from model.labels import NORMALIZED, WELL_KNOWN
from model.requirement import InvalidRequirement, Requirement

__all__ = ["STRICT", "InvalidRequirement", "Requirement", "Requirements"]

STRICT: frozenset[str] = frozenset()
"""For `Requirements.compatible(undefined=...)`: no key may be left undefined."""


class Requirements(Mapping[str, Requirement]):
    """Label key -> allowed values. Keys are normalised; a key that is not there allows everything."""

    __slots__ = ("_by_key", "_hash")

    def __init__(self, by_key: Mapping[str, Requirement] | None = None) -> None:
        self._by_key: dict[str, Requirement] = {}
        self._hash: int | None = None
        for key, requirement in (by_key or {}).items():
            _narrow(self._by_key, key, requirement)

    @classmethod
    def from_terms(cls, terms: Iterable[RequirementTerm]) -> Self:
        """All `terms` together; raises `InvalidRequirement` naming the key of a malformed one."""
        out = cls()
        for term in terms:
            try:
                requirement = Requirement.of(term.operator, term.values, term.min_values)
            except InvalidRequirement as error:
                raise InvalidRequirement(f"{term.key}: {error}") from None
            _narrow(out._by_key, term.key, requirement)
        return out

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> Self:
        """Each label with exactly its value."""
        out = cls()
        for key, value in labels.items():
            _narrow(out._by_key, key, _exactly(value))
        return out

    def __getitem__(self, key: str) -> Requirement:
        return self._by_key[key]

    def __contains__(self, key: object) -> bool:
        return key in self._by_key  # without the detour of `Mapping`, as `items` below

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    def items(self) -> ItemsView[str, Requirement]:
        """Keys with their allowed values, without the detour of `Mapping.items`."""
        return self._by_key.items()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Requirements) and self._by_key == other._by_key

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._by_key.items()))
        return self._hash

    def __repr__(self) -> str:
        return f"Requirements({self})"

    def __str__(self) -> str:
        return ", ".join(f"{key} {self._by_key[key]}" for key in sorted(self._by_key))

    def of(self, key: str) -> Requirement:
        """The values allowed for `key`; everything when it is not defined."""
        return self._by_key.get(NORMALIZED.get(key, key), Requirement.ANY)

    def __and__(self, other: "Requirements") -> "Requirements":
        """Both sides at once. Keys may end up allowing nothing; ask `empty_keys`."""
        if not other._by_key:
            return self
        if not self._by_key:
            return other
        out = Requirements()
        out._by_key.update(self._by_key)
        for key, requirement in other._by_key.items():
            _narrow(out._by_key, key, requirement)
        return out

    def empty_keys(self) -> tuple[str, ...]:
        """Keys for which no value is left, sorted. `DoesNotExist` is one of them: see `Requirement.allows_absent`."""
        return tuple(sorted(key for key, requirement in self._by_key.items() if requirement.is_empty))

    def compatible(self, incoming: "Requirements", *, undefined: frozenset[str] = WELL_KNOWN) -> bool:
        """Whether `incoming` can be met by something of these requirements.

        A key of `incoming` that is not defined here is refused unless it is in `undefined` or asks for absence
        (NotIn, DoesNotExist). Pass `STRICT` to refuse undefined well-known labels too.
        """
        mine = self._by_key
        for key, wanted in incoming.items():
            offered = mine.get(key)
            if offered is None:
                if key not in undefined and not wanted.allows_absent:
                    return False
            elif not offered.satisfiable_with(wanted):
                return False
        return True

    def met_by(self, labels: Mapping[str, str], *, undefined: frozenset[str]) -> bool:
        """Whether something with `labels` is `compatible` with these: the same answer without requirements of its own.

        Kinds of machines are asked by the thousand.
        """
        if not NORMALIZED.keys().isdisjoint(labels.keys()):
            return Requirements.from_labels(labels).compatible(self, undefined=undefined)
        for key, requirement in self._by_key.items():
            value = labels.get(key)
            if value is None:
                if key not in undefined and not requirement.allows_absent:
                    return False
            elif not requirement.has(value):
                return False
        return True

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object that carries exactly `labels` satisfies all of them (a Kubernetes node selector)."""
        for key, requirement in self._by_key.items():
            value = labels.get(key)
            if not (requirement.allows_absent if value is None else requirement.has(value)):
                return False
        return True

    def labels(self) -> dict[str, str]:
        """The labels whose value is already decided, sorted by key."""
        decided = ((key, self._by_key[key].only) for key in sorted(self._by_key))
        return {key: value for key, value in decided if value is not None}

    def terms(self) -> tuple[RequirementTerm, ...]:
        """Canonical terms that mean the same, sorted by key."""
        return tuple(term for key in sorted(self._by_key) for term in self._by_key[key].terms(key))


@lru_cache(maxsize=4096)
def _exactly(value: str) -> Requirement:
    return Requirement(frozenset((value,)))


def _narrow(by_key: dict[str, Requirement], key: str, requirement: Requirement) -> None:
    key = NORMALIZED.get(key, key)
    existing = by_key.get(key)
    by_key[key] = requirement if existing is None else existing & requirement
