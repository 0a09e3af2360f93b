"""Who may change what: whether the owners that agree to a revision may do all that it does."""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from fleet.plan.changes import PlannedChange
from fleet.plan.plan import Plan
from model.fleet import Fleet
from model.kinds.approval import OwnerRule
from model.quantity import InvalidQuantity, parse_quantity

_SHOWN_MOST = 5


def unowned(before: Fleet, after: Fleet, plan: Plan, agreed: Sequence[OwnerRule]) -> Iterator[str]:
    """Yields the changes that no owner has agreed to, by the rules in force whose owners could; nothing without rules.

    `agreed` has the rules of whose people somebody agrees.
    """
    rules = before.policy.spec.owners
    if not rules:
        return
    lacking: dict[tuple[str, ...], list[str]] = {}
    for change in plan.declared:
        if not any(_covers(rule, change, before.files, after.files) for rule in agreed):
            able = tuple(rule.name for rule in rules if _covers(rule, change, before.files, after.files))
            lacking.setdefault(able, []).append(change.address)
    for able, addresses in lacking.items():
        shown = ", ".join(addresses[:_SHOWN_MOST]) + (", ..." if len(addresses) > _SHOWN_MOST else "")
        yield f"{shown}: an owner of {' or '.join(able)} has to agree" if able else f"{shown}: no owner may do this"


def _covers(
    rule: OwnerRule,
    change: PlannedChange,
    files_before: Mapping[str, Mapping[str, str]],
    files_after: Mapping[str, Mapping[str, str]],
) -> bool:
    """Returns whether a rule lets its owners make a change."""
    kind, _, name = change.address.partition("/")
    if rule.kinds and kind not in {it.lower() for it in rule.kinds}:
        return False
    if rule.names and not _any_matches(name, rule.names):
        return False
    stands = _files_of(files_before.get(change.address, {}), files_after.get(change.address, {}))
    if rule.paths and not (stands and all(_any_matches(file, rule.paths) for file in stands)):
        return False
    if change.verb != "update":
        return not rule.fields and rule.max_percent is None
    if rule.fields and not all(_any_matches(it.path, rule.fields) for it in change.fields):
        return False
    return rule.max_percent is None or all(_within(it.before, it.after, rule.max_percent) for it in change.fields)


def _files_of(before: Mapping[str, str], after: Mapping[str, str]) -> frozenset[str]:
    """The files that a change was made in: those that say something else than before, or all where none is known to.

    Of a base and its patches each says its part, so that who owns a cluster's patches need not own the base.
    """
    every = before.keys() | after.keys()
    return frozenset(it for it in every if not before.get(it) or before[it] != after.get(it)) or frozenset(every)


def _any_matches(text: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def _within(before: Any, after: Any, percent: int) -> bool:
    """Returns whether two values differ in numbers alone, each by no more than so much of what it was."""
    if before == after:
        return True
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return before.keys() == after.keys() and all(_within(before[key], after[key], percent) for key in before)
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(_within, before, after, [percent] * len(before)))
    try:
        was, becomes = parse_quantity(before), parse_quantity(after)
    except InvalidQuantity:
        return False
    return 100 * abs(becomes - was) <= percent * abs(was)
