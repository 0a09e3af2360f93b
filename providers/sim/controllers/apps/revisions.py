"""The templates that a StatefulSet or DaemonSet has had, kept as ControllerRevisions (`pkg/controller/history`)."""

from collections.abc import Collection
from typing import Final

from providers.sim.controllers.apps.base import API_VERSION, safe_hash
from providers.sim.controllers.mirror import InformerCache
from providers.sim.controllers.objects import Obj, controlled_by
from providers.sim.store import StoreAlreadyExists

REVISION_HASH: Final = "controller-revision-hash"
_HISTORY_HASH: Final = "controller.kubernetes.io/hash"
_KEPT: Final = 10


def data_of(template: Obj) -> Obj:
    """What a revision keeps of an object: a patch that replaces its template."""
    return {"spec": {"template": {**template, "$patch": "replace"}}}


def template_in(revision: Obj) -> Obj:
    """The template that a revision keeps."""
    return {field: value for field, value in revision["data"]["spec"]["template"].items() if field != "$patch"}


def hash_of(revision: Obj) -> str:
    """The hash that its name ends with, where pods carry it."""
    return str(revision["metadata"]["labels"][REVISION_HASH])


def current_revision(owner: Obj, held: list[Obj], among: InformerCache, *, pods_carry_it: bool) -> Obj:
    """The revision of the template of now: a former one that becomes the last again, or a new one.

    `held`: the revisions of `owner`, by number. `pods_carry_it`: its hash stands under the label that pods have.
    """
    data, last = data_of(owner["spec"]["template"]), held[-1]["revision"] if held else 0
    equal = [one for one in held if one["data"] == data]
    if equal:
        return equal[-1] if equal[-1]["revision"] == last else among.update({**equal[-1], "revision": last + 1})
    collisions = 0
    while True:
        made = _new(owner, data, last + 1, collisions, REVISION_HASH if pods_carry_it else _HISTORY_HASH)
        try:
            return among.create(made)
        except StoreAlreadyExists:
            collisions += 1  # another object's, by chance


def _new(owner: Obj, data: Obj, number: int, collisions: int, label: str) -> Obj:
    meta, template = owner["metadata"], owner["spec"]["template"]
    name_hash = safe_hash(data, collisions or None)
    return {
        "apiVersion": API_VERSION,
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"{meta['name']}-{name_hash}",
            "namespace": meta["namespace"],
            "labels": {**((template.get("metadata") or {}).get("labels") or {}), label: name_hash},
            "ownerReferences": controlled_by(owner, API_VERSION, owner["kind"]),
        },
        "data": data,
        "revision": number,
    }


def truncate(owner: Obj, held: list[Obj], live: Collection[str], among: InformerCache) -> None:
    """Forget the oldest revisions beyond the history that is kept, but none of those named in `live`."""
    limit = owner["spec"].get("revisionHistoryLimit")
    history = [one for one in held if one["metadata"]["name"] not in live]
    for one in history[: max(0, len(history) - (_KEPT if limit is None else int(limit)))]:
        among.delete(one)
