"""NodeOverlays whose conditions mean nothing, or that say different things of the same offers."""

from collections.abc import Iterator
from itertools import groupby

from model.kinds import NodeOverlay
from model.kinds.node_overlay import NodeOverlaySpec
from model.loader.declarations import Declarations, Declared
from model.problem import Code, Problem, Severity
from model.requirement import InvalidRequirement, Requirement
from model.requirements import Requirements


def malformed_overlays(declarations: Declarations) -> Iterator[Problem]:
    """Terms whose values do not suit their operator, or that exclude each other."""
    for overlay in declarations.node_overlays.values():
        sound = True
        for index, term in enumerate(overlay.value.spec.requirements):
            try:
                Requirement.of(term.operator, term.values)
            except InvalidRequirement as error:
                sound = False
                place = ("spec", "requirements", index)
                yield overlay.problem(place, f"{term.key}: {error}", Code.IMPOSSIBLE_REQUIREMENT)
        spec = overlay.value.spec
        if sound and not (spec.price or spec.price_adjustment or spec.capacity):
            message = "it says neither a price nor a capacity: it does nothing"
            yield overlay.problem(("spec",), message, Code.UNUSED, severity="warning")


def overlays_in_conflict(declarations: Declarations) -> Iterator[Problem]:
    """Overlays of one weight that say the price or a resource of the same offers: all but the last by name are void.

    An error where both are about the same offers by their very words; else a warning, for which offers there are is not
    known here.
    """
    overlays = sorted(declarations.node_overlays.values(), key=lambda one: (-one.value.spec.weight, one.value.name))
    for _, group in groupby(overlays, key=lambda one: one.value.spec.weight):
        equals = [(one, _requirements(one.value)) for one in group]
        for position, (one, wanted) in enumerate(equals):
            for other, others in equals[position + 1 :]:
                if wanted is not None and others is not None:
                    yield from _conflict(one, wanted, other, others)


def _requirements(overlay: NodeOverlay) -> Requirements | None:
    try:
        return Requirements.from_terms(overlay.spec.requirements)
    except InvalidRequirement:
        return None  # malformed_overlays has said so


def _conflict(
    one: Declared[NodeOverlay], wanted: Requirements, other: Declared[NodeOverlay], others: Requirements
) -> Iterator[Problem]:
    """At the first by name, which is the one that gives way."""
    what = _both_say(one.value.spec, other.value.spec)
    shared = wanted.keys() & others.keys()
    if not what or not all(wanted[key].overlaps(others[key]) for key in shared):
        return
    same = wanted == others
    message = (
        f"the NodeOverlay {other.value.name!r} at {other.place} says {what} of {'the' if same else 'perhaps the'} same "
        "offers with the same weight, and this one gives way"
    )
    hint = "give one of them another weight"
    severity: Severity = "error" if same else "warning"
    yield one.problem(("spec", "weight"), message, Code.OVERLAYS_IN_CONFLICT, hint=hint, severity=severity)


def _both_say(one: NodeOverlaySpec, other: NodeOverlaySpec) -> str:
    if (one.price or one.price_adjustment) and (other.price or other.price_adjustment):
        return "the price"
    return next((resource for resource in sorted(one.capacity) if resource in other.capacity), "")
