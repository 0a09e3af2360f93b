"""The policies of a Job, as values: what a failed pod means (podFailurePolicy), and when enough has succeeded.

After kube-controller-manager `job/pod_failure_policy.go` and `job/success_policy.go`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from providers.sim.controllers.objects import Obj, status_of


@dataclass(frozen=True, slots=True)
class FailureRuling:
    """What the first matching rule makes of a failed pod; without one it counts as a failure.

    `action`: Ignore, Count, FailIndex or FailJob; `message` says why the job fails, for FailJob alone.
    """

    action: str = ""
    message: str = ""

    @property
    def counts(self) -> bool:
        """Whether the pod counts as a failure of its job."""
        return self.action != "Ignore"


COUNTED = FailureRuling()


def ruling(policy: Obj | None, pod: Obj) -> FailureRuling:
    """What the policy says of a failed pod."""
    for position, rule in enumerate((policy or {}).get("rules") or ()):
        why = _matches(rule, pod)
        if why:
            action = str(rule["action"])
            text = f"{why} matching {action} rule at index {position}"
            return FailureRuling(action, text if action == "FailJob" else "")
    return COUNTED


def _matches(rule: Obj, pod: Obj) -> str:
    """Why the rule matches, in the words of the API; empty when it does not."""
    metadata, status = pod["metadata"], status_of(pod)
    name = f"{metadata.get('namespace')}/{metadata['name']}"
    if rule.get("onExitCodes"):
        statuses = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
        found = _exited(rule["onExitCodes"], statuses)
        return f"Container {found[0]} for pod {name} failed with exit code {found[1]}" if found else ""
    conditions = {(c["type"], c["status"]) for c in status.get("conditions") or ()}
    for pattern in rule.get("onPodConditions") or ():
        if (pattern["type"], pattern.get("status") or "True") in conditions:
            return f"Pod {name} has condition {pattern['type']}"
    return ""


def _exited(wanted: Obj, statuses: Iterable[Obj]) -> tuple[str, int] | None:
    """The container, and its exit code, that ended as the rule says; one that succeeded never did."""
    for container in statuses:
        ended = (container.get("state") or {}).get("terminated")
        code = ended["exitCode"] if ended else 0
        named = wanted.get("containerName") in (None, container["name"])
        if code and named and (code in wanted["values"]) == (wanted["operator"] == "In"):
            return container["name"], code
    return None


def enough(policy: Obj | None, succeeded: set[int], completions: int) -> str:
    """The message of the first rule of the success policy that is met, or nothing."""
    for position, rule in enumerate((policy or {}).get("rules") or () if succeeded else ()):
        named, count = rule.get("succeededIndexes"), rule.get("succeededCount")
        wanted = indexes(named, completions) if named is not None else succeeded
        least = count if count is not None else len(wanted)
        if len(wanted & succeeded) >= least:
            return f"Matched rules at index {position}"
    return ""


def indexes(text: str | None, completions: int | None = None) -> set[int]:
    """`completedIndexes` and its like ("0-2,5") as a set, without those at or above `completions`."""
    found: set[int] = set()
    for span in filter(None, (text or "").split(",")):
        first, _, last = span.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found if completions is None else {index for index in found if index < completions}


def format_indexes(found: Iterable[int]) -> str:
    """A set of indexes as the status has it: ascending spans, a pair written "3,4", more as "3-5"."""
    spans: list[list[int]] = []
    for index in sorted(found):
        if spans and spans[-1][1] == index - 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    return ",".join(_format_span(span) for span in spans)


def _format_span(span: Sequence[int]) -> str:
    first, last = span
    return str(first) if first == last else f"{first}{',' if last == first + 1 else '-'}{last}"
