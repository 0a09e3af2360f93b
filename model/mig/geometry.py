"""Which sets of MIG instances fit on one GPU.

A layout is a choice of profile and start position per instance. Instances may coexist if their unit ranges are
disjoint, no profile exceeds its own maximum and the media engines suffice (NVIDIA MIG user guide, "MIG Placement").
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from model.hints import did_you_mean, listing
from model.labels import GPU_RESOURCE, MIG_RESOURCE_PREFIX
from model.mig.facts import FAMILY_MIB_SHARE, MODELS, ModelRow, ProfileRow

_ENGINES = ("NVDEC", "JPEG", "OFA")


def resource_name(profile: str) -> str:
    """The extended resource that the device plugin (strategy `mixed`) offers for `profile`: '+' becomes '.'."""
    return MIG_RESOURCE_PREFIX + profile.replace("+", ".")


def device_resource(kind: str, profile: str) -> str:
    """The resource that a device of NVIDIA's DRA driver counts as, by its `type` and `profile`; empty for no GPU."""
    if kind == "mig":
        return resource_name(profile)
    return GPU_RESOURCE if kind == "gpu" else ""


@dataclass(frozen=True, slots=True)
class Profile:
    """A size of MIG instance on one GPU model."""

    name: str
    compute_slices: int
    memory_slices: int
    memory_mib: int
    """Usable memory; a low estimate where no listing of the model was seen."""
    most: int
    """Most instances on one GPU, whatever else is on it."""
    starts: tuple[int, ...]
    size: int
    """Placement units taken from each start."""
    media: tuple[int, int, int]
    """NVDEC, JPEG and OFA engines taken."""

    @property
    def resource(self) -> str:
        """`nvidia.com/mig-<name>` as a pod requests it."""
        return resource_name(self.name)


@dataclass(frozen=True, slots=True)
class MigModel:
    """A GPU model that MIG can cut."""

    id: str
    """As in `MigLayout.spec.models`: `a100-80gb`, `h100-80gb`."""
    title: str
    compute_slices: int
    memory_slices: int
    units: int
    media: tuple[int, int, int]
    memory_gib: int
    gpu_name: str
    device_ids: tuple[str, ...]
    """PCI ids as in mig-parted's device filter, without the vendor: `0x2330`."""
    products: tuple[str, ...]
    profiles: Mapping[str, Profile]


@dataclass(frozen=True, slots=True)
class MigPlacement:
    """A proof that a set of instances fits: each with its start unit, ordered by start."""

    instances: tuple[tuple[str, int], ...]
    free_units: int


@dataclass(frozen=True, slots=True)
class Impossible:
    """Why a set of instances does not fit on one GPU."""

    reason: str

    def __str__(self) -> str:
        return self.reason


def _profile(model: ModelRow, row: ProfileRow) -> Profile:
    """A profile of a concrete model; its name is go-nvlib's `getMigMemorySizeGB`: round half up of its share."""
    family = model.family
    gb = (2 * row.memory_slices * model.gib + family.memory_slices) // (2 * family.memory_slices)
    compute, _, suffix = row.shape.partition("g")
    estimate_mib = int(row.memory_slices * model.gib * 1024 * FAMILY_MIB_SHARE) // family.memory_slices
    # A profile has at least the memory of the smaller ones that it has room for: no listing says otherwise.
    seen_mib = (row.memory_slices // slices * mib for slices, mib in model.mib.items() if slices <= row.memory_slices)
    memory_mib = model.mib.get(row.memory_slices) or max(seen_mib, default=estimate_mib)
    name = f"{compute}g.{gb}gb{suffix}"
    return Profile(name, int(compute), row.memory_slices, memory_mib, row.most, row.starts, row.size, row.media)


@cache
def mig_models() -> Mapping[str, MigModel]:
    """Every known model by its id."""
    return {
        row.id: MigModel(
            id=row.id,
            title=row.title,
            compute_slices=row.family.compute_slices,
            memory_slices=row.family.memory_slices,
            units=row.family.units,
            media=row.family.media,
            memory_gib=row.gib,
            gpu_name=row.gpu_name,
            device_ids=row.device_ids,
            products=row.products,
            profiles={profile.name: profile for profile in (_profile(row, line) for line in row.family.profiles)},
        )
        for row in MODELS
    }


@cache
def models_for_instance_gpu(gpu_name: str, memory_mib: int | None = None) -> tuple[MigModel, ...]:
    """The models that a GPU of this name (`a100`, as in the instance label) and memory can be; empty: no MIG.

    EC2 reports 40960 MiB for the 40 GB A100 but 183359 for the 180 GB B200, hence a tolerance of 4 %.
    """
    name = gpu_name.lower().replace(" ", "-")
    named = (model for model in mig_models().values() if name and model.gpu_name == name)
    return tuple(
        model
        for model in named
        if memory_mib is None or abs(memory_mib - model.memory_gib * 1024) <= model.memory_gib * 1024 * 0.04
    )


def feasible(model: MigModel, counts: Mapping[str, int]) -> MigPlacement | Impossible:
    """Positions for `counts` (profile -> instances) on one GPU of `model`, or why there are none."""
    wanted = {name: count for name, count in counts.items() if count > 0}
    if impossible := _exceeds(model, wanted):
        return impossible
    instances = [model.profiles[name] for name in wanted for _ in range(wanted[name])]
    instances.sort(key=lambda profile: (-profile.size, -profile.compute_slices, profile.name))
    placed = _place(tuple(instances), 0)
    if placed is None:
        return Impossible(f"{_text(wanted)} has no placement on {model.title}: {_starts(model, wanted)}")
    free = model.units - sum(profile.size for profile in instances)
    return MigPlacement(tuple(sorted(placed, key=lambda instance: instance[1])), free)


def _place(rest: tuple[Profile, ...], occupied: int) -> tuple[tuple[str, int], ...] | None:
    """Depth-first over start positions, biggest profile first; `occupied` has a bit for each unit taken."""
    if not rest:
        return ()
    profile = rest[0]
    for start in profile.starts:
        mask = ((1 << profile.size) - 1) << start
        if occupied & mask:
            continue
        placed = _place(rest[1:], occupied | mask)
        if placed is not None:
            return ((profile.name, start), *placed)
    return None


def _exceeds(model: MigModel, wanted: Mapping[str, int]) -> Impossible | None:
    """The first plain limit that `wanted` breaks; these explain better than a failed search and bound its cost."""
    for name, count in wanted.items():
        profile = model.profiles.get(name)
        if profile is None:
            hint = did_you_mean(name, model.profiles)
            known = listing(model.profiles, most=12)
            return Impossible(f"{model.title} has no MIG profile {name!r}, it has {known}; {hint}".rstrip("; "))
        if count > profile.most:
            return Impossible(f"{count} x {name}: at most {profile.most} fit on one {model.title}")
    used = [(model.profiles[name], count) for name, count in wanted.items()]
    compute = sum(profile.compute_slices * count for profile, count in used)
    if compute > model.compute_slices:
        return Impossible(f"{_text(wanted)} needs {compute} compute slices; {model.title} has {model.compute_slices}")
    memory = sum(profile.memory_slices * count for profile, count in used)
    if memory > model.memory_slices:
        return Impossible(f"{_text(wanted)} needs {memory} memory slices; {model.title} has {model.memory_slices}")
    for engine, index in zip(_ENGINES, range(3), strict=True):
        taken = sum(profile.media[index] * count for profile, count in used)
        if taken > model.media[index]:
            hint = "; profiles with the suffix -me take none" if any("-me" in name for name in model.profiles) else ""
            return Impossible(
                f"{_text(wanted)} needs {taken} {engine} engines; {model.title} has {model.media[index]}{hint}"
            )
    return None


def _text(counts: Mapping[str, int]) -> str:
    return " + ".join(f"{count} x {name}" for name, count in counts.items())


def _starts(model: MigModel, wanted: Mapping[str, int]) -> str:
    def place(name: str) -> str:
        profile = model.profiles[name]
        return f"{name} takes {profile.size} units from {' or '.join(map(str, profile.starts))}"

    return f"of {model.units} units, " + "; ".join(place(name) for name in wanted)
