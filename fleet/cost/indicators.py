"""What a month's records say of how well the fleet is used: utilisation, waits, losses, fragmentation, spot, cost."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from fleet.cost.records import StartRecord
from fleet.cost.statement import NONE
from fleet.cost.sums import UsedHours

HOURS_A_MONTH: Final = 730
"""As clouds count them."""


@dataclass(slots=True)
class GpuTime:
    """A `GpuTime` is GPU seconds of one model, by what became of them."""

    used: float = 0.0
    """By work."""
    healthy: float = 0.0
    """Of machines that were ready, used or not."""
    paid: float = 0.0
    """Of all machines that billed."""

    @property
    def utilisation(self) -> float:
        """Returns used / healthy, 0 to 1."""
        return self.used / self.healthy if self.healthy else 0.0


@dataclass(slots=True)
class QueueWaits:
    """`QueueWaits` are the first starts of a queue's gangs: seconds of each, by what they waited for."""

    total: list[float] = field(default_factory=list)
    """From submit to run."""
    quota: list[float] = field(default_factory=list)
    """Until quota was reserved for good: its turn, and capacity that could be had."""
    machines: list[float] = field(default_factory=list)
    """From then until it was admitted: machines bought, booted, cut."""
    pods: list[float] = field(default_factory=list)
    """From then until all pods were ready: images, volumes, the pods themselves."""

    def add(self, start: StartRecord) -> None:
        """Count a start."""
        reserved_s = min(max(start.reserved_s or start.admitted_s, start.submitted_s), start.admitted_s)
        self.total.append(max(0.0, start.running_s - start.submitted_s))
        self.quota.append(max(0.0, reserved_s - start.submitted_s))
        self.machines.append(max(0.0, start.admitted_s - reserved_s))
        self.pods.append(max(0.0, start.running_s - start.admitted_s))


def percentile(values: Sequence[float], percent: int) -> float:
    """Returns the least value that so many percent of the values do not exceed (nearest rank); 0 of none."""
    ranked = sorted(values)
    return ranked[max(0, ceil(len(ranked) * percent / 100) - 1)] if ranked else 0.0


@dataclass(slots=True)
class Indicators:
    """`Indicators` are a month's numbers by which a fleet is judged. Times in seconds, costs in micro-USD."""

    by_model: dict[str, GpuTime] = field(default_factory=dict)
    waits: dict[str, QueueWaits] = field(default_factory=dict)
    cost: int = 0
    lost_gpu_s: float = 0.0
    lost_cost: int = 0
    evictions: int = 0
    """Gangs whose work was lost, each hour once."""
    stuck_gpu_s: float = 0.0
    """Idle, on machines that others use in part: no gang that wants whole machines can have them."""
    idle_gpu_s: float = 0.0
    spot_gpu_s: float = 0.0
    spot_hours: float = 0.0
    """Hours of spot machines."""
    interruptions: int = 0
    """Spot machines that were taken back."""

    @property
    def gpus(self) -> GpuTime:
        """Returns the GPU time of all models."""
        parts = self.by_model.values()
        return GpuTime(sum(it.used for it in parts), sum(it.healthy for it in parts), sum(it.paid for it in parts))

    @property
    def fragmentation(self) -> float:
        """Returns the part of idle GPU time that is stuck, 0 to 1."""
        return self.stuck_gpu_s / self.idle_gpu_s if self.idle_gpu_s else 0.0

    @property
    def spot_share(self) -> float:
        """Returns the part of GPU time that was bought as spot, 0 to 1."""
        paid = self.gpus.paid
        return self.spot_gpu_s / paid if paid else 0.0

    @property
    def interruptions_a_month(self) -> float:
        """Returns how often a spot machine is taken back in a month (730 h) of running."""
        return self.interruptions * HOURS_A_MONTH / self.spot_hours if self.spot_hours else 0.0

    @property
    def usd_per_useful_gpu_h(self) -> float | None:
        """Returns the whole cost by hour of GPU that did work which was not lost; None where there was none."""
        useful_h = (self.gpus.used - self.lost_gpu_s) / 3600
        return self.cost / 1e6 / useful_h if useful_h > 0 else None


def indicators(used: Iterable[UsedHours], starts: Iterable[StartRecord]) -> Indicators:
    """Returns the numbers of machines' hours and of starts."""
    found = Indicators()
    for it in used:
        _add(found, it)
    for start in starts:
        if not start.again:
            found.waits.setdefault(start.queue or NONE, QueueWaits()).add(start)
    found.waits = dict(sorted(found.waits.items()))
    found.by_model = dict(sorted(found.by_model.items()))
    return found


def _add(found: Indicators, it: UsedHours) -> None:
    found.cost += it.cost_micro_usd
    found.lost_gpu_s += it.lost_s
    found.lost_cost += it.lost_micro_usd
    found.evictions += it.evictions
    if it.gpu:
        model = found.by_model.setdefault(it.gpu, GpuTime())
        model.used, model.paid = model.used + it.used_s, model.paid + it.gpu_s
        model.healthy += it.gpu_s - it.broken_s
        found.idle_gpu_s += it.gpu_s - it.used_s - it.broken_s
        found.stuck_gpu_s += it.stuck_s
    if it.capacity_type == "spot":
        found.spot_gpu_s += it.gpu_s
        found.spot_hours += it.machine_h
        found.interruptions += it.interruptions


def waits_rows(it: Indicators) -> Iterator[tuple[str, ...]]:
    """Yields a row for each queue: gangs, percentiles of the whole wait, and what half of them waited for."""
    for queue, waits in it.waits.items():
        whole = (percentile(waits.total, percent) for percent in (50, 95, 99))
        parts = (percentile(values, 50) for values in (waits.quota, waits.machines, waits.pods))
        yield (queue, str(len(waits.total)), *map(_lasting, whole), *map(_lasting, parts))


def _lasting(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def as_numbers(it: Indicators) -> Mapping[str, object]:
    """Returns everything as plain numbers, for JSON."""
    return {
        "usd": it.cost / 1e6,
        "usdPerUsefulGpuHour": it.usd_per_useful_gpu_h,
        "utilisation": it.gpus.utilisation,
        "models": {
            name: {"usedGpuHours": t.used / 3600, "healthyGpuHours": t.healthy / 3600, "utilisation": t.utilisation}
            for name, t in it.by_model.items()
        },
        "evictions": it.evictions,
        "lostGpuHours": it.lost_gpu_s / 3600,
        "lostUsd": it.lost_cost / 1e6,
        "fragmentation": it.fragmentation,
        "spotShare": it.spot_share,
        "spotInterruptions": it.interruptions,
        "interruptionsPerSpotMachineMonth": it.interruptions_a_month,
        "waitSeconds": {
            queue: {
                "gangs": len(waits.total),
                **{f"p{percent}": percentile(waits.total, percent) for percent in (50, 95, 99)},
                **{
                    name: {f"p{percent}": percentile(values, percent) for percent in (50, 95, 99)}
                    for name, values in (("quota", waits.quota), ("machines", waits.machines), ("pods", waits.pods))
                },
            }
            for queue, waits in it.waits.items()
        },
    }
