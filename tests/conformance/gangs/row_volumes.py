"""Volumes of a row, in the words of Kubernetes' Go types, as what the agent observes of them."""

from collections.abc import Mapping
from typing import Any

from fleet.snapshot.volumes import PersistentVolume, StorageClass, VolumeClaim, Volumes
from model.quantity import canonical_amount
from tests.conformance.cases import Case
from tests.conformance.gangs.declined import decline_if, known_words


def claims_of(pod: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names of the claims that a pod mounts; RowDeclined for any other volume."""
    sources = [volume["VolumeSource"] for volume in pod.get("volumes") or ()]
    for source in sources:
        known_words("pods.volumes", source, "PersistentVolumeClaim")
    return tuple(source["PersistentVolumeClaim"]["ClaimName"] for source in sources)


def volumes_of(case: Case) -> Volumes:
    """Returns the claims, volumes and storage classes of a row."""
    claims = [_claim(entry) for entry in case.get("pvcs") or ()]
    volumes = [_volume(entry) for entry in case.get("pvs") or ()]
    classes = [_storage_class(entry) for entry in case.get("storage_classes") or ()]
    return Volumes(
        {claim.key: claim for claim in claims},
        {volume.name: volume for volume in volumes},
        {found.name: found for found in classes},
    )


def _claim(entry: Mapping[str, Any]) -> VolumeClaim:
    meta, spec = entry["ObjectMeta"], entry["Spec"]
    known_words("pvcs", entry, "ObjectMeta", "Spec")
    known_words("pvcs.Spec", spec, "Resources", "StorageClassName")
    return VolumeClaim(
        meta["Namespace"], meta["Name"], f"uid-{meta['Name']}", spec.get("StorageClassName") or "",
        requested_bytes=_storage(spec["Resources"]["Requests"]),
    )  # fmt: skip


def _volume(entry: Mapping[str, Any]) -> PersistentVolume:
    spec = entry["Spec"]
    known_words("pvs", entry, "ObjectMeta", "Spec", "Status")
    known_words("pvs.Spec", spec, "Capacity", "StorageClassName")
    return PersistentVolume(
        entry["ObjectMeta"]["Name"], storage_class=spec.get("StorageClassName") or "",
        capacity_bytes=_storage(spec["Capacity"]),
        available=(entry.get("Status") or {}).get("Phase") == "Available",
    )  # fmt: skip


def _storage_class(entry: Mapping[str, Any]) -> StorageClass:
    known_words("storage_classes", entry, "ObjectMeta", "Provisioner", "VolumeBindingMode")
    mode = entry.get("VolumeBindingMode") or "Immediate"
    decline_if(mode not in {"Immediate", "WaitForFirstConsumer"}, f"storage_classes.VolumeBindingMode {mode}")
    return StorageClass(entry["ObjectMeta"]["Name"], entry["Provisioner"], waits=mode == "WaitForFirstConsumer")


def _storage(amounts: Mapping[str, Any]) -> int:
    return int(canonical_amount("storage", amounts["storage"]))
