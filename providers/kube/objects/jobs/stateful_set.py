"""`apps/v1` StatefulSet on a queue: its pods are one gang, as many as it has replicas.

It has no switch: its pods are held one by one, behind the gate that the admission policy in `deploy/` puts into them,
or its own template. Its controller makes them one after the other, so the number comes from `spec.replicas` and nobody
waits for all of them to be there (Kueue's fast admission of the group that it makes of a StatefulSet).
"""

from collections.abc import Mapping, Sequence

from fleet.snapshot import ANY_NUMBER, Hold, Numbering
from fleet.snapshot.constraints import EphemeralClaim
from providers.kube.objects.jobs.kind import JobKind, JobOutcome, number
from providers.kube.objects.jobs.templates import Role
from providers.kube.objects.json_patch import pointer
from providers.kube.objects.names import GROUP_NAME, MAIN_POD_SET, VOLCANO_GROUP
from providers.kube.objects.paths import STATEFUL_SETS
from providers.kube.objects.shapes import JsonObject, dig, first_of


class StatefulSet(JobKind):
    """A StatefulSet serves until somebody stops it; its pods are one pod set, `main`."""

    path, kind = STATEFUL_SETS, "StatefulSet"
    optional = False
    hold = Hold.PODS
    late = frozenset({"apps.kubernetes.io", "controller-revision-hash", "statefulset.kubernetes.io"})

    def roles(self, raw: JsonObject) -> Sequence[Role]:
        """Returns its one template, as often as it has replicas."""
        spec = raw["spec"]
        return [Role(MAIN_POD_SET, number(spec.get("replicas"), 1), pointer("spec", "template"), spec["template"])]

    def outcome(self, raw: JsonObject) -> JobOutcome | None:
        """Returns None: it never ends by itself."""
        return None

    def numbering(self, raw: JsonObject) -> Numbering | None:
        """Returns how its pods are numbered, and of what revision those of the present template are."""
        spec, status = raw["spec"], raw.get("status") or {}
        seen = status.get("observedGeneration") == dig(raw, "metadata", "generation")
        return Numbering(
            first=number(dig(spec, "ordinals", "start"), 0),
            one_by_one=spec.get("podManagementPolicy") != "Parallel",
            revision=(status.get("updateRevision") or "") if seen else "",
            claims=tuple(sorted(_claim(template) for template in _claim_templates(raw))),
        )

    def restarts(self, raw: JsonObject) -> Mapping[str, int]:
        """Allows any number: a pod that is lost is made anew under its name."""
        return {MAIN_POD_SET: ANY_NUMBER}

    def manageable(self, raw: JsonObject) -> bool:
        """Returns whether its pods are one gang; otherwise each is one of its own, or they are of a group they name.

        Claims that it makes for its pods are there only with them: where these ask for volumes that exist already, it
        is not known before where such a volume is.
        """
        meta = raw["spec"]["template"].get("metadata") or {}
        grouped = first_of(meta.get("labels"), *GROUP_NAME) or first_of(meta.get("annotations"), *VOLCANO_GROUP)
        return not grouped and not any(map(_asks_for_volumes_that_exist, _claim_templates(raw)))

    def suspended(self, raw: JsonObject) -> bool:
        """Returns True: whether it has started its pods tell."""
        return True


def _claim_templates(raw: JsonObject) -> Sequence[JsonObject]:
    return raw["spec"].get("volumeClaimTemplates") or ()


def _claim(template: JsonObject) -> EphemeralClaim:
    """Returns what a template makes for each pod; of the claim it names the part before the pod's name."""
    return EphemeralClaim(dig(template, "metadata", "name") or "", dig(template, "spec", "storageClassName") or "")


def _asks_for_volumes_that_exist(template: JsonObject) -> bool:
    spec = template.get("spec") or {}
    return bool(spec.get("selector") or spec.get("volumeName")) or spec.get("storageClassName") == ""
