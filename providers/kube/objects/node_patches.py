"""Patches of nodes and of gated pods."""

from collections.abc import Mapping, Sequence

from fleet.actions import PatchNode
from model.kinds import Taint
from providers.kube.objects.json_patch import at_version, became, pointer
from providers.kube.objects.names import TERMINATION_FINALIZER
from providers.kube.objects.shapes import JsonObject, set_fields


def node_patch(action: PatchNode, raw: JsonObject) -> list[JsonObject]:
    """The JSON patch for the node in `raw`; empty when it is as wanted.

    The API replaces the list of taints as a whole, so the patch first tests that it is still the one that was read:
    a taint somebody added meanwhile makes it fail (Invalid) instead of vanishing. A node without taints is guarded by
    its resourceVersion (Conflict), for `test` cannot express absence.
    """
    taints: list[JsonObject] = raw["spec"].get("taints") or []
    tainted = became("/spec/taints", taints, _retainted(taints, action))
    guard = [{"op": "test", "path": "/spec/taints", "value": taints}] if taints else [at_version(raw)]
    meta = raw["metadata"]
    labelled = _marked(meta, "labels", action.labels, action.remove_labels)
    kept = _finalized(meta) if action.add_finalizer else []
    return [*(guard if tainted else []), *tainted, *labelled, *_marked(meta, "annotations", action.annotations), *kept]


def _finalized(meta: JsonObject) -> list[JsonObject]:
    """Our finalizer added to those of others. One that is being deleted takes no more (API server)."""
    held: list[str] = meta.get("finalizers") or []
    if TERMINATION_FINALIZER in held or "deletionTimestamp" in meta:
        return []
    if not held:
        return [{"op": "add", "path": "/metadata/finalizers", "value": [TERMINATION_FINALIZER]}]
    guard: JsonObject = {"op": "test", "path": "/metadata/finalizers", "value": held}
    return [guard, {"op": "add", "path": "/metadata/finalizers/-", "value": TERMINATION_FINALIZER}]


def _retainted(taints: list[JsonObject], action: PatchNode) -> list[JsonObject]:
    """Removed by key, added unless there; a taint is named by key and effect, its value may change."""
    wanted = {(taint.key, taint.effect): taint for taint in action.add_taints}
    kept: list[JsonObject] = []
    for held in taints:
        taint = wanted.pop((held["key"], held["effect"]), None)
        if taint is not None:
            kept.append(held if held.get("value", "") == taint.value else taint_object(taint))
        elif held["key"] not in action.remove_taints:
            kept.append(held)
    return [*kept, *map(taint_object, wanted.values())]


def taint_object(taint: Taint) -> JsonObject:
    """A taint as it stands on the wire."""
    return {"key": taint.key, "effect": taint.effect} | set_fields(value=taint.value)


def _marked(meta: JsonObject, where: str, wanted: Mapping[str, str], unwanted: Sequence[str] = ()) -> list[JsonObject]:
    """Labels or annotations that are not there yet, or otherwise, and those that are to go."""
    held: dict[str, str] | None = meta.get(where)
    if held is None:
        return [{"op": "add", "path": f"/metadata/{where}", "value": dict(wanted)}] if wanted else []
    removed: list[JsonObject] = [
        {"op": "remove", "path": pointer("metadata", where, key)}
        for key in sorted(unwanted)
        if key in held and key not in wanted
    ]
    return removed + [
        {"op": "add", "path": pointer("metadata", where, key), "value": value}
        for key, value in sorted(wanted.items())
        if held.get(key) != value
    ]
