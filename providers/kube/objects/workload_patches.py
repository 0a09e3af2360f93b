"""Changes of a Workload beside the status that is recorded: fields that are also, or first of all, other people's."""

from itertools import chain

from fleet.snapshot import CheckState, Gang, GangState
from model.labels import PRIORITY_CLASS, QUEUE
from providers.kube.objects.json_patch import at_version, became, pointer
from providers.kube.objects.shapes import JsonObject, dig
from providers.kube.objects.workloads import workload_object

_RANKED_BY = ("queue", "priorityClass", "podSets")
_ASKED = (*_RANKED_BY, "priority", "preempts")


def deactivation_patch(raw: JsonObject) -> list[JsonObject]:
    """Say that it is not active; nothing when it says so already.

    It comes before the status that goes with it: whoever dies in between has a gang that leaves anyway.
    """
    if dig(raw, "spec", "active") is False:
        return []
    return [{"op": "add", "path": "/spec/active", "value": False}]


def checks_patch(raw: JsonObject, gang: Gang) -> list[JsonObject]:
    """Ask all admission checks again when `gang`, as it will be, has given back what the stored one still holds.

    An answer was about the reservation that ends. It comes before the status that goes with it: whoever dies in between
    has a gang that waits for its checks, or leaves anyway.
    """
    if gang.state is not GangState.PENDING or dig(raw, "status", "state") in {None, GangState.PENDING}:
        return []
    asked = [
        {"op": "replace", "path": pointer("status", "admissionChecks", index), "value": again}
        for index, check in enumerate(dig(raw, "status", "admissionChecks") or ())
        if check != (again := {"name": check["name"], "state": str(CheckState.PENDING)})
    ]
    return [at_version(raw), *asked] if asked else []


def respecification_patch(raw: JsonObject, gang: Gang) -> list[JsonObject]:
    """Say what the gang's job asks for now; the rest of the specification stays as it is.

    Whether it is active is its user's to say. Its job and age never change (the rules of the Workload's definition),
    not even to another text of the same instant.

    It comes after the status in which the gang holds nothing: whoever dies in between has a gang that waits, and whose
    job asks for something else.
    """
    asked = workload_object(gang)
    spec = {key: value for key, value in raw["spec"].items() if key not in _ASKED}
    spec |= {key: asked["spec"][key] for key in _ASKED if key in asked["spec"]}
    if all(spec.get(key) == raw["spec"].get(key) for key in _RANKED_BY):
        spec = raw["spec"]  # a priority alone does not change (the rules of the Workload's definition)
    held, labels = dig(raw, "metadata", "labels") or {}, asked["metadata"]["labels"]
    named = (
        became(pointer("metadata", "labels", key), held.get(key), labels.get(key)) for key in (QUEUE, PRIORITY_CLASS)
    )
    changes = [*became("/spec", raw["spec"], spec), *chain.from_iterable(named)]
    return [at_version(raw), *changes] if changes else []
