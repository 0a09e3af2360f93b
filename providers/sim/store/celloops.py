"""The macros of CEL that go over the elements of a list, or the keys of a map: they stop where they may."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from providers.sim.store.celvalues import CelError

Body = Callable[[Any], Any]
Items = Iterable[Any]


class Loop(NamedTuple):
    """How a macro is called (with so many arguments, its variable among them), and what computes it."""

    arguments: tuple[int, ...]
    computed: Callable[[Items, list[Body]], Any]


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise CelError("no such overload")
    return value


def _decided(items: Items, body: Body, *, by: bool) -> bool:
    """Whether one element decides; a failure counts only where none does."""
    trouble: CelError | None = None
    for it in items:
        try:
            if _truth(body(it)) is by:
                return by
        except CelError as error:
            trouble = trouble or error
    if trouble is not None:
        raise trouble
    return not by


def _mapped(items: Items, bodies: list[Body]) -> list[Any]:
    *tests, made = bodies
    return [made(it) for it in items if all(_truth(test(it)) for test in tests)]


LOOPS: Final[Mapping[str, Loop]] = {
    "all": Loop((2,), lambda items, bodies: _decided(items, bodies[0], by=False)),
    "exists": Loop((2,), lambda items, bodies: _decided(items, bodies[0], by=True)),
    "exists_one": Loop((2,), lambda items, bodies: sum(_truth(bodies[0](it)) for it in items) == 1),
    "filter": Loop((2,), lambda items, bodies: [it for it in items if _truth(bodies[0](it))]),
    "map": Loop((2, 3), _mapped),
}
"""Name -> the macro; those with two variables are not among them."""
