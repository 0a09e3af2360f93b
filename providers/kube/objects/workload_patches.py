"""Changes of a Workload beside the status that is recorded: fields that are also, or first of all, other people's."""

from fleet.snapshot import CheckState, Gang, GangState
from providers.kube.objects.json_patch import at_version, pointer
from providers.kube.objects.shapes import JsonObject, dig


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
