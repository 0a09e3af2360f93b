"""What people mean by a GPU: a model, a MIG profile or a fraction of a model, and how many of it a machine holds."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from fleet.offerings.offerings import Offering
from fleet.snapshot import Catalog, InstanceType
from model.hints import listing, near
from model.mig.geometry import mig_models, models_for_instance_gpu, resource_name

_PROFILE: Final = re.compile(r"\d+g\.\d+gb(\+[a-z.]+)?")
_FRACTION: Final = re.compile(r"(?P<model>.+)/(?P<parts>[1-9]\d{0,2})")
_TOLERANCE_MIB: Final = 64
"""EC2 rounds the memory of a fraction down."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What is counted, and which machines could have it."""

    types: Mapping[str, int]
    """Instance type -> whole GPUs or fractions on it; for a MIG profile its GPUs that could be cut so."""
    resource: str = ""
    """The resource that is counted, where that depends on how a machine is cut."""

    def on(self, offering: Offering) -> int:
        """Units on one machine of an offering; 0 = it has none."""
        if self.resource:
            return offering.allocatable.get(self.resource, 0)
        return self.types.get(offering.offer.instance_type.name, 0)


class UnknownGpu(ValueError):
    """Nothing on sale is called so; the message says what is near, or what there is."""


def unit_of(catalog: Catalog, name: str) -> Unit:
    """What is counted when somebody asks for GPUs of this name; raises `UnknownGpu`.

    A model is as in the label `karpenter.k8s.aws/instance-gpu-name` (`h100`) or as in a MigLayout (`a100-80gb`), in any
    case of letters, and counted in whole GPUs however they are shared; a MIG profile (`1g.10gb`) is counted in
    instances; a fraction (`l4/8`) is an eighth of a GPU, of machines that are sold with no more.
    """
    asked = name.strip().lower().replace(" ", "-").replace("_", "-")
    machines = [kind for _, kind in sorted(catalog.types.items()) if kind.gpu_name]
    if _PROFILE.fullmatch(asked):
        return _instances(machines, asked)
    fraction = _FRACTION.fullmatch(asked)
    found = _fractions(machines, fraction["model"], int(fraction["parts"])) if fraction else _whole(machines, asked)
    if not found:
        known = names_of(machines)
        hint = near(asked, known)
        there = f"did you mean {hint!r}?" if hint else f"there are {listing(known, most=20)}"
        raise UnknownGpu(f"no machine in {catalog.region or 'the catalogue'} has a GPU called {name!r}; {there}")
    return Unit(found)


def names_of(machines: Iterable[InstanceType]) -> set[str]:
    """Every name that `unit_of` knows some of these machines by, but for MIG profiles."""
    known = [kind for kind in machines if kind.gpu_name]
    sizes = _sizes(known)
    whole = {alias for kind in known if kind.gpu_count for alias in _aliases(kind)}
    return whole | {f"{kind.gpu_name}/{parts}" for kind in known if (parts := _parts(kind, sizes))}


def _instances(machines: Iterable[InstanceType], profile: str) -> Unit:
    if not any(profile in model.profiles for model in mig_models().values()):
        known = {each for model in mig_models().values() for each in model.profiles}
        hint = near(profile, known)
        there = f"did you mean {hint!r}?" if hint else f"there are {listing(known, most=20)}"
        raise UnknownGpu(f"no GPU can be cut into {profile!r}; {there}")
    able = {kind.name: kind.gpu_count for kind in machines if kind.gpu_count and _can_be_cut(kind, profile)}
    return Unit(able, resource_name(profile))


def _can_be_cut(kind: InstanceType, profile: str) -> bool:
    models = models_for_instance_gpu(kind.gpu_name, kind.gpu_memory_mib)
    return any(profile in model.profiles for model in models)


def _whole(machines: Iterable[InstanceType], asked: str) -> dict[str, int]:
    return {kind.name: kind.gpu_count for kind in machines if kind.gpu_count and asked in _aliases(kind)}


def _fractions(machines: Iterable[InstanceType], model: str, parts: int) -> dict[str, int]:
    known = list(machines)
    sizes = _sizes(known)
    return {kind.name: 1 for kind in known if kind.gpu_name == model and _parts(kind, sizes) == parts}


def _aliases(kind: InstanceType) -> set[str]:
    return {kind.gpu_name, *(model.id for model in models_for_instance_gpu(kind.gpu_name, kind.gpu_memory_mib))}


def _sizes(machines: Iterable[InstanceType]) -> dict[str, int]:
    """Model -> MiB of a whole GPU."""
    sizes: dict[str, int] = {}
    for kind in machines:
        if kind.gpu_count:
            sizes[kind.gpu_name] = max(sizes.get(kind.gpu_name, 0), kind.gpu_memory_mib)
    return sizes


def _parts(kind: InstanceType, sizes: dict[str, int]) -> int:
    """Into how many parts the GPU is divided of which the machine has one; 0 = it has whole ones."""
    whole = sizes.get(kind.gpu_name, 0)
    if kind.gpu_count or not whole or not kind.gpu_memory_mib:
        return 0
    parts = round(whole / kind.gpu_memory_mib)
    return parts if abs(parts * kind.gpu_memory_mib - whole) <= _TOLERANCE_MIB else 0
