"""MIG layouts: what fits on a GPU, and what suits the machines of a pool."""

from collections.abc import Iterator, Sequence

from model.hints import did_you_mean, listing
from model.kinds import MigLayout, NodePool
from model.kinds.capacity import DeviceGroup
from model.loader.declarations import Declarations, Declared
from model.loader.tree import Path
from model.mig import Impossible, feasible, mig_models, models_for_instance_gpu
from model.problem import Code, Problem


def impossible_layouts(declarations: Declarations) -> Iterator[Problem]:
    """Unknown GPU models, sets of profiles that do not fit, and device groups that do not name every GPU once."""
    for layout in declarations.mig_layouts.values():
        for model_id, groups in layout.value.spec.models.items():
            path: Path = ("spec", "models", model_id)
            yield from _devices(layout, path, groups)
            model = mig_models().get(model_id)
            if model is None:
                hint = did_you_mean(model_id, mig_models()) or f"known are {listing(mig_models(), most=20)}"
                yield layout.problem(
                    path, f"unknown GPU model {model_id!r}", Code.IMPOSSIBLE_MIG_LAYOUT, hint=hint, key=True
                )
                continue
            for index, group in enumerate(groups):
                found = feasible(model, group.profiles)
                if isinstance(found, Impossible):
                    yield layout.problem((*path, index, "profiles"), found.reason, Code.IMPOSSIBLE_MIG_LAYOUT)
        yield from _one_gpu_twice(layout)


def _one_gpu_twice(layout: Declared[MigLayout]) -> Iterator[Problem]:
    """Models that are one GPU under two drivers: mig-parted tells them apart by nothing, so that both must agree."""
    cuts: dict[tuple[str, ...], str] = {}
    for model_id, groups in layout.value.spec.models.items():
        model = mig_models().get(model_id)
        first = cuts.setdefault(model.device_ids, model_id) if model else model_id
        if layout.value.spec.models[first] != groups:
            message = f"{model_id} and {first} are one GPU under two drivers, and the layout cuts it in two ways"
            hint = "declare a layout for each, and give the pool that of its driver"
            path: Path = ("spec", "models", model_id)
            yield layout.problem(path, message, Code.IMPOSSIBLE_MIG_LAYOUT, hint=hint, key=True)


def _devices(layout: Declared[MigLayout], path: Path, groups: Sequence[DeviceGroup]) -> Iterator[Problem]:
    everything = [index for index, group in enumerate(groups) if group.devices == "all"]
    if everything and len(groups) > 1:
        message = "a group of all devices must be the only one"
        yield layout.problem((*path, everything[0]), message, Code.IMPOSSIBLE_MIG_LAYOUT)
        return
    owner: dict[int, int] = {}
    for index, group in enumerate(groups):
        for position, device in enumerate(() if group.devices == "all" else group.devices):
            if device in owner:
                message = f"device {device} is already in group {owner[device]}"
                yield layout.problem((*path, index, "devices", position), message, Code.IMPOSSIBLE_MIG_LAYOUT)
            owner.setdefault(device, index)
    missing = sorted(set(range(max(owner, default=-1) + 1)) - set(owner))
    if missing:
        message = f"no group names device {', '.join(map(str, missing))}"
        hint = "a group without profiles leaves its GPUs whole"
        yield layout.problem(path, message, Code.IMPOSSIBLE_MIG_LAYOUT, hint=hint, key=True)


def layouts_that_do_not_suit(declarations: Declarations) -> Iterator[Problem]:
    """Layouts of a pool that say nothing about its GPUs, or name more or fewer GPUs than its machines carry."""
    for pool in declarations.node_pools.values():
        mig = pool.value.spec.sharing.mig
        for index, name in enumerate(mig.layouts if mig else ()):
            layout = declarations.mig_layouts.get(name)
            if layout is not None:
                path: Path = ("spec", "sharing", "mig", "layouts", index)
                yield from _models(pool, path, layout.value)
                yield from _counts(pool, path, layout.value)


def pool_models(pool: NodePool) -> dict[str, tuple[str, ...]]:
    """GPU names the pool allows -> the MIG models each may be; only what the GPU selector says."""
    gpu = pool.spec.gpu
    if gpu is None:
        return {}
    least = gpu.min_memory_mib or 0
    return {
        name: tuple(model.id for model in models_for_instance_gpu(name) if model.memory_gib * 1024 * 1.04 >= least)
        for name in gpu.models
    }


def _models(pool: Declared[NodePool], path: Path, layout: MigLayout) -> Iterator[Problem]:
    for name, models in pool_models(pool.value).items():
        if not models:
            yield pool.problem(path, f"MIG cannot cut the GPU {name!r} of this pool", Code.LAYOUT_MISMATCH)
        elif not set(models) & set(layout.spec.models):
            said = listing(layout.spec.models)
            message = f"layout {layout.name!r} says how to cut {said}, but the pool's GPU {name!r} is {listing(models)}"
            yield pool.problem(path, message, Code.LAYOUT_MISMATCH)


def _counts(pool: Declared[NodePool], path: Path, layout: MigLayout) -> Iterator[Problem]:
    gpu = pool.value.spec.gpu
    if gpu is None:
        return
    for model, groups in layout.spec.models.items():
        devices = [device for group in groups if group.devices != "all" for device in group.devices]
        if not devices:
            continue
        named = max(devices) + 1
        too_many = gpu.max_count is not None and gpu.max_count < named
        too_few = gpu.min_count is not None and gpu.min_count > named
        if too_many or too_few:
            bound = f"at most {gpu.max_count}" if too_many else f"at least {gpu.min_count}"
            message = f"layout {layout.name!r} names {named} GPUs of {model}, the pool's machines carry {bound}"
            yield pool.problem(path, message, Code.LAYOUT_MISMATCH)
