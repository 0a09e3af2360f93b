"""Checks that a FleetPolicy writes in CEL (https://github.com/google/cel-spec): true where all is well.

So are those of Kubernetes' ValidatingAdmissionPolicy. One that cannot be evaluated does not hold.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from model.fleet import Fleet
from model.kinds.approval import PlanCheck
from model.loader.declarations import Declarations
from model.problem import Code, Problem

if TYPE_CHECKING:
    from fleet.policy.cel import Expression

STEPS_MOST: Final = 2_000_000
"""Steps of evaluation for all checks of a plan together: some 10 s."""


class Denial(NamedTuple):
    """A check that does not hold, and that owners may agree to all the same."""

    check: str
    message: str
    overrides: tuple[str, ...]
    """Names of owner rules."""


class CheckVerdict(NamedTuple):
    """What the checks of a policy say of a plan."""

    refusals: tuple[str, ...] = ()
    """Those that nobody may agree to."""
    denials: tuple[Denial, ...] = ()
    warnings: tuple[str, ...] = ()
    """Those that only warn, and the denials."""


@dataclass(frozen=True, slots=True)
class CheckCase:
    """What became of a case of a check."""

    check: str
    number: int
    """Of its cases, from 1."""
    wanted: bool
    held: bool
    error: str = ""
    """Why the expression could not be evaluated."""

    @property
    def as_wanted(self) -> bool:
        """Returns whether the check said what the case says."""
        return self.held == self.wanted and not self.error


def unreadable_checks(declarations: Declarations) -> Iterator[Problem]:
    """Yields a problem for each expression that is not CEL, and for each name of an owner rule that there is not."""
    for declared in declarations.policies.values():
        spec = declared.value.spec
        owners = {rule.name for rule in spec.owners}
        for index, check in enumerate(spec.checks):
            place: tuple[str | int, ...] = ("spec", "checks", index)
            if error := _read(check.expression)[1]:
                yield declared.problem((*place, "expression"), f"it is not CEL: {error}", Code.INVALID_VALUE)
            for name in check.overrides:
                if name not in owners:
                    message = f"there is no owner rule {name!r} that could agree to what it denies"
                    yield declared.problem((*place, "overrides"), message, Code.DANGLING_REFERENCE)


def judge_plan(fleet: Fleet, plan: Mapping[str, Any]) -> CheckVerdict:
    """Returns what the checks of a fleet in force say of a plan, as `muster plan --output json` writes it."""
    steps = [STEPS_MOST]
    broken = [(check, words) for check in fleet.policy.spec.checks if (words := _broken(check, plan, steps))]
    denied = [(check, words) for check, words in broken if check.action == "Deny"]
    denials = tuple(Denial(check.name, words, check.overrides) for check, words in denied if check.overrides)
    warnings = [words for check, words in broken if check.action == "Warn"]
    warnings += [f"{it.message}; an owner of {' or '.join(it.overrides)} has to agree" for it in denials]
    return CheckVerdict(tuple(words for check, words in denied if not check.overrides), denials, tuple(warnings))


def _broken(check: PlanCheck, plan: Mapping[str, Any], steps: list[int]) -> str:
    """Returns the sentence about a check that does not hold; empty where it does."""
    held, error = _holds(check, plan, steps)
    if held:
        return ""
    return f"check {check.name}: {check.message}" + (f" ({error})" if error else "")


def cases_of(fleet: Fleet) -> Iterator[CheckCase]:
    """Yields what becomes of the cases that stand beside the checks of a policy."""
    for check in fleet.policy.spec.checks:
        for number, case in enumerate(check.tests, 1):
            held, error = _holds(check, case.plan, [STEPS_MOST])
            yield CheckCase(check.name, number, case.passes, held, error)


def _holds(check: PlanCheck, document: Mapping[str, Any], steps: list[int]) -> tuple[bool, str]:
    """Returns whether a check holds of a plan, and why that cannot be said."""
    expression, error = _read(check.expression)
    return expression.holds(document, steps) if expression is not None else (False, error)


def _read(text: str) -> tuple["Expression | None", str]:
    from fleet.policy.cel import Expression, InvalidExpression  # the library takes a fifth of a second to import

    try:
        return Expression(text), ""
    except InvalidExpression as error:
        return None, str(error)
