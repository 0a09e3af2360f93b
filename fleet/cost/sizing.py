"""What pods use of the GPUs and slices that they hold, by DCGM, and what would be enough.

That is a smaller slice, a share, or another GPU, each with a fifth in hand. Compute is compared within a GPU model:
how much of an H100 an L4 is depends on the work.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import ceil, inf
from typing import Final

from fleet.cost.indicators import HOURS_A_MONTH
from fleet.cost.weights import slice_weight
from fleet.snapshot import Catalog, Gang, Snapshot
from fleet.snapshot.gpus import FRESH_S, GpuReading, MeasuredUse, UseTally
from fleet.snapshot.seats import pods_of
from model import labels
from model.index import Index, derived
from model.mig import MigModel, mig_models
from model.mig.geometry import Profile
from model.plain_text import instant

IN_HAND: Final = 1.2
"""What is advised has so much more than the most that was used."""
MOST_REPLICAS: Final = 8
FEW_READINGS: Final = 10
"""Of fewer nothing is concluded."""
GpuPrices = Mapping[tuple[str, int], float]
"""(GPU name, MiB) -> USD an hour for one."""


def uses(scrapes: Iterable[tuple[float, Sequence[GpuReading]]]) -> tuple[MeasuredUse, ...]:
    """Returns what each pod used of each device, by namespace, pod and device, of scrapes (epoch seconds, readings)."""
    tallies: dict[tuple[str, ...], UseTally] = defaultdict(UseTally)
    for at_s, readings in sorted(scrapes, key=lambda it: it[0]):
        for it in readings:
            if it.pod:
                tallies[it.namespace, it.pod, it.node, it.gpu, it.instance].see(at_s, it)
    found = (tally.measured() for _, tally in sorted(tallies.items()))
    return tuple(it for it in found if it is not None)


# -- what would be enough ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SizeAdvice:
    """A `SizeAdvice` says what would be enough for a pod, and what that saves in USD a month."""

    use: MeasuredUse
    words: str
    saves_usd: float
    profile: str = ""
    """The MIG profile that would be enough; empty where it is something else."""


def size_advice(use: MeasuredUse, prices: GpuPrices) -> SizeAdvice | None:
    """Returns the advice that saves most; None where what a pod holds is needed, or too little is known."""
    if use.readings < FEW_READINGS:
        return None
    gpu_usd_h = _gpu_usd_h(prices, use.last.model)
    model = _mig_model(use.last.model)
    own = model.profiles.get(use.last.profile) if model else None
    if use.last.profile and own is None:
        return None
    paid = _paid_usd_h(model, own, gpu_usd_h)
    same = [*_slices(use, model, own, gpu_usd_h), *_shares(use, model, gpu_usd_h)]
    for options in (same, _others(use, prices)):  # another GPU where this one cannot be divided any further
        usd_h, words, profile = min(options, default=(inf, "", ""))
        if usd_h < paid:
            return SizeAdvice(use, words, (paid - usd_h) * HOURS_A_MONTH, profile)
    return None


_Option = tuple[float, str, str]
"""(USD an hour, words, MIG profile)."""


def _paid_usd_h(model: MigModel | None, own: Profile | None, gpu_usd_h: float) -> float:
    return gpu_usd_h * float(slice_weight(model, own)) if model and own else gpu_usd_h


def _slices(use: MeasuredUse, model: MigModel | None, own: Profile | None, gpu_usd_h: float) -> Iterator[_Option]:
    """Slices of the same model with room for what was used; plain ones, as nothing is known of media engines."""
    if model is None:
        return
    slices = own.compute_slices if own else model.compute_slices
    for name, profile in sorted(model.profiles.items()):
        roomy = profile.memory_mib >= use.most_mib * IN_HAND
        if _is_plain(name) and roomy and profile.compute_slices >= use.active * slices * IN_HAND:
            yield gpu_usd_h * float(slice_weight(model, profile)), f"a slice {name}", name


def _is_plain(profile: str) -> bool:
    return "+" not in profile and not profile.endswith("-me")


def _shares(use: MeasuredUse, model: MigModel | None, gpu_usd_h: float) -> Iterator[_Option]:
    """A share of a GPU that has no MIG."""
    by_memory = _total_mib(use) / (use.most_mib * IN_HAND) if use.most_mib else inf
    by_compute = 1 / (use.active * IN_HAND) if use.active else inf
    replicas = int(min(by_memory, by_compute, MOST_REPLICAS))
    if model is None and replicas >= 2:
        yield gpu_usd_h / replicas, f"one of {replicas} replicas of such a GPU", ""


def _total_mib(use: MeasuredUse) -> float:
    return (use.last.used_mib or 0.0) + (use.last.free_mib or 0.0)


def _others(use: MeasuredUse, prices: GpuPrices) -> Iterator[_Option]:
    """Cheaper GPUs with room for the memory, for what is seldom active: a smaller one is then active more often."""
    if use.active > 0.25:
        return
    for (name, memory_mib), usd_h in sorted(prices.items()):
        if memory_mib >= use.most_mib * IN_HAND:
            yield usd_h, f"a whole {name} ({memory_mib // 1024} GiB), if its speed will do", ""


def _gpu_usd_h(prices: GpuPrices, model: str) -> float:
    """The price of one GPU that DCGM names so, USD an hour; 0 where none is on sale."""
    words = set(model.lower().replace("-", " ").split())
    sizes = {int(it.removesuffix("gb")) for it in words if it.removesuffix("gb").isdigit() and it.endswith("gb")}
    fit = [
        (usd_h, memory_mib)
        for (name, memory_mib), usd_h in prices.items()
        if set(name.lower().replace("-", " ").split()) <= words
        and (not sizes or any(abs(memory_mib / 1024 - it) <= it * 0.06 for it in sizes))
    ]
    return min(fit, default=(0.0, 0))[0]


def gpu_prices(catalog: Catalog) -> GpuPrices:
    """Returns the least that each GPU costs on demand; of machines that run the same images."""
    found: dict[tuple[str, int], float] = {}
    for offer in catalog.offers:
        machine = offer.instance_type
        if machine.gpu_count and offer.capacity_type == "on-demand" and machine.labels.get(labels.ARCH) == "amd64":
            key, usd_h = (machine.gpu_name, machine.gpu_memory_mib), offer.price_usd_h / machine.gpu_count
            found[key] = min(usd_h, found.get(key, inf))
    return found


def _mig_model(model: str) -> MigModel | None:
    product = model.replace(" ", "-")
    names = {product, product.removeprefix("NVIDIA-")}
    return next((it for it in mig_models().values() if names & {*it.products}), None)


# -- in words ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UseReport:
    """A `UseReport` is what was seen: advice by what it saves, and who holds a GPU and does nothing."""

    uses: tuple[MeasuredUse, ...]
    advice: tuple[SizeAdvice, ...]
    idle: tuple[MeasuredUse, ...]
    """Those idle for longer than was asked for, the longest first."""


def use_report(found: Sequence[MeasuredUse], catalog: Catalog, idle_after_s: float) -> UseReport:
    """Returns what there is to say of what pods use."""
    prices = gpu_prices(catalog)
    advice = [it for use in _alone(found) if (it := size_advice(use, prices)) is not None]
    advice += _of_several(found, prices)
    advice.sort(key=lambda it: (-it.saves_usd, it.use.last.namespace, it.use.last.pod, it.use.last.gpu))
    idle = [it for it in found if it.idle_s >= idle_after_s]
    idle.sort(key=lambda it: (-it.idle_s, it.last.namespace, it.last.pod, it.last.gpu))
    return UseReport(tuple(found), tuple(advice), tuple(idle))


def _alone(found: Iterable[MeasuredUse]) -> list[MeasuredUse]:
    """The uses of pods with one device."""
    by_pod: dict[tuple[str, str], list[MeasuredUse]] = defaultdict(list)
    for use in found:
        by_pod[use.last.namespace, use.last.pod].append(use)
    return [of_pod[0] for of_pod in by_pod.values() if len(of_pod) == 1]


def _of_several(found: Iterable[MeasuredUse], prices: GpuPrices) -> Iterator[SizeAdvice]:
    """The advice for pods with several devices: the busiest of them counts."""
    by_pod: dict[tuple[str, str, str], list[MeasuredUse]] = defaultdict(list)
    for use in found:
        by_pod[use.last.namespace, use.last.pod, use.holds].append(use)
    for several in by_pod.values():
        if len(several) > 1:
            busiest = replace(max(several, key=lambda it: it.active), most_mib=max(it.most_mib for it in several))
            if (advice := pod_advice(busiest, len(several), prices)) is not None:
                yield advice


@dataclass(frozen=True, slots=True)
class SliceSizes:
    """`SliceSizes` are MIG profile -> count: what pods with one device hold, and what would be enough for them.

    A whole GPU of which a slice would be enough is held as the profile that takes all of it.
    """

    held: Mapping[str, int]
    enough: Mapping[str, int]


def slice_sizes(found: Iterable[MeasuredUse], prices: GpuPrices) -> SliceSizes:
    """Returns what slices pods hold and what would be enough; whoever needs the slice that they hold counts with it."""
    held, enough = Counter[str](), Counter[str]()
    for use in _alone(found):
        advice = size_advice(use, prices)
        wants = (advice.profile if advice is not None else "") or use.last.profile
        if wants:
            held[use.last.profile or _whole(use.last.model)] += 1
            enough[wants] += 1
    return SliceSizes(dict(sorted(held.items())), dict(sorted(enough.items())))


def _whole(model: str) -> str:
    """The profile that takes a whole GPU of a model that can be cut."""
    found = _mig_model(model)
    plain = [(it.compute_slices, name) for name, it in found.profiles.items() if _is_plain(name)] if found else []
    return max(plain, default=(0, ""))[1]


# -- of a gang --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GangUse:
    """A `GangUse` is what a gang made of the GPUs and slices that it holds, over the window that is kept."""

    devices: int
    """Of how many there are readings."""
    mean: float
    """How active they were in the mean, 0 to 1."""
    most_mib: float
    """The most memory that was used of one."""
    total_mib: float
    """What one has."""
    holds: str
    from_s: float
    until_s: float
    """Between which instants (epoch seconds) it was looked at."""
    advice: str = ""
    """What would be enough; empty = all of it is needed, or too little is known."""
    saves_usd: float = 0.0
    """A month, with that."""


def gang_use(snapshot: Snapshot, gang: Gang) -> GangUse | None:
    """Returns what a gang makes of its GPUs; None without readings. Pods of a gang are alike: the busiest counts."""
    pods = [uses for pod in pods_of(snapshot, gang) if pod.active and (uses := snapshot.gpu_uses.get(pod.key))]
    every = list(chain.from_iterable(pods))
    if not every:
        return None
    found = _use_of_all(every)
    if len({it.holds for it in every}) > 1:
        return found
    advice = pod_advice(_busiest(every), max(map(len, pods)), _prices_of(snapshot.index, snapshot.catalog))
    return found if advice is None else replace(found, advice=advice.words, saves_usd=advice.saves_usd * len(pods))


def _use_of_all(every: Sequence[MeasuredUse]) -> GangUse:
    """What several devices were used for together; what they are is told of the first."""
    return GangUse(
        len(every),
        sum(it.mean for it in every) / len(every),
        max(it.most_mib for it in every),
        _total_mib(every[0]),
        every[0].holds,
        min(it.from_s for it in every),
        max(it.until_s for it in every),
    )


def _busiest(every: Sequence[MeasuredUse]) -> MeasuredUse:
    """The use of the most active device, with the most memory of any; as little is known as of any."""
    busiest, most_mib = max(every, key=lambda it: it.active), max(it.most_mib for it in every)
    return replace(busiest, most_mib=most_mib, readings=min(it.readings for it in every))


@derived(1)
def _prices_of(_index: Index, catalog: Catalog) -> GpuPrices:
    return gpu_prices(catalog)


def pod_advice(use: MeasuredUse, devices: int, prices: GpuPrices) -> SizeAdvice | None:
    """Returns what would be enough for a pod with so many devices that it all uses so.

    Of several GPUs some may be enough; slices and shares of several make no larger one, and are advised for one alone.
    """
    if devices == 1:
        return size_advice(use, prices)
    total_mib = _total_mib(use)
    usd_h = _paid(use, prices)
    if use.readings < FEW_READINGS or not total_mib or usd_h is None:
        return None
    enough = max(1, ceil(devices * IN_HAND * max(use.active, use.most_mib / total_mib)))
    if enough >= devices:
        return None
    words = f"{enough} of {devices} {use.last.profile or 'GPUs'} a pod"
    return SizeAdvice(use, words, (devices - enough) * usd_h * HOURS_A_MONTH)


def _paid(use: MeasuredUse, prices: GpuPrices) -> float | None:
    """What a device of this kind costs an hour, USD; None where that is not known."""
    model = _mig_model(use.last.model)
    own = model.profiles.get(use.last.profile) if model else None
    if use.last.profile and own is None:
        return None
    return _paid_usd_h(model, own, _gpu_usd_h(prices, use.last.model))


def use_words(use: GangUse, now_s: float) -> str:
    """Returns what a gang makes of its GPUs, in words."""
    memory = f"{use.most_mib / 1024:.1f} of {use.total_mib / 1024:.1f} GiB at most of each"
    looked = f"by readings since {instant(use.from_s)}"
    old = f", the last of them at {instant(use.until_s)}" if now_s - use.until_s > FRESH_S else ""
    return f"{100 * use.mean:.0f} % of {use.devices} x {use.holds}, memory {memory}, {looked}{old}"


def advice_words(use: GangUse) -> str:
    """Returns what would be enough for a gang, in words; empty where there is no advice."""
    return f"{use.advice} would be enough: {use.saves_usd:,.0f} USD a month less" if use.advice else ""
