"""Changes of a Workload beside the status that is recorded: fields that are also, or first of all, other people's."""

from providers.kube.objects.shapes import JsonObject, dig


def deactivation_patch(raw: JsonObject) -> list[JsonObject]:
    """Say that it is not active; nothing when it says so already.

    It comes before the status that goes with it: whoever dies in between has a gang that leaves anyway.
    """
    if dig(raw, "spec", "active") is False:
        return []
    return [{"op": "add", "path": "/spec/active", "value": False}]
