"""`disruption-queue`: commands under way, how long they may take and what becomes of them."""

from collections.abc import Mapping
from typing import Any

from bench.reference.karpenter.disrupt.orders import Fate, Replacement, fate, patience_s
from tests.conformance.cases import Case

Given = Mapping[str, Any]
_GONE = ("deleted", "gone", "missing", "vanished")


def run(case: Case) -> dict[str, Any]:
    """Patience, one command, or several."""
    given = case["given"]
    if "commands" in given:
        fates = [_fate(each, len(given["commands"])) for each in given["commands"]]
        return {"done": [each is Fate.DONE for each in fates], "rolled_back": [each is Fate.GIVEN_UP for each in fates]}
    if "replacements" not in given:
        return {"max_retry_seconds": patience_s(given["commands_in_queue"])}
    found = _fate(given, given.get("commands_in_queue", 1))
    back = found is Fate.GIVEN_UP
    return {
        "command_done": found is Fate.DONE,
        "candidates_deleted": given.get("candidates", 0) if found is Fate.DONE else 0,
        "rolled_back": back,
        "tainted": not back,
        "untainted": back,
        "replacements_deleted": 0,
    }


def _fate(given: Given, commands: int) -> Fate:
    told = ((name, float(value)) for name, value in given.items() if "elapsed" in name)
    elapsed_s = sum(value * (60.0 if "minute" in name else 1.0) for name, value in told)
    return fate([_replacement(each) for each in given["replacements"]], elapsed_s, commands)


def _replacement(given: Given) -> Replacement:
    gone = any(given.get(name) for name in _GONE) or given.get("exists") is False
    return Replacement(bool(given.get("initialized")), gone)
