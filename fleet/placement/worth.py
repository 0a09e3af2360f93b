"""Worth in counts: what is free on a machine is worth to the work that may still come, resource by resource.

This is the rule of `bench.reference.fragmentation` for machines as the deciders see them: so many free units of each
extended resource (whole GPUs, MIG slices, replicas of shared GPUs), CPU and memory, without a notion of which device.
It is in whole numbers and needs no numpy, so that a pass which places little stays cheap.
`docs/design/0003-packing.md`, "In production".
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from fleet.mig.layouts import is_gpu_resource
from model.quantity import CPU, Resources

MEMORY = "memory"
HORIZON = 30
"""How many further requests a device is expected to see. Results hardly differ between 10 and 60."""
MICRO, PER_MILLI = 1_000_000, 1_000
"""Worth is counted in whole millionths of a GPU, so that sums are exact; losses are told apart by thousandths."""

Asked = tuple[tuple[str, int], ...]
"""What one pod requests, in canonical amounts, by name of the resource."""


class _Single(NamedTuple):
    """A unit that pods ask for one at a time: its worth and what it needs beside it."""

    resource: str
    worth: int
    cpu: int
    memory: int


class _Several(NamedTuple):
    """Units that pods ask for together, in that amount; what all of them are worth and need."""

    resource: str
    amount: int
    worth: int
    cpu: int
    memory: int


class Worth:
    """The measure for one kind of machine, from the pods that may stand there (requests -> how many ask so).

    `total` counts the pods that ask for GPUs anywhere; `part` says what part of a GPU one unit of a resource is.
    """

    __slots__ = ("_several", "_single")

    def __init__(
        self,
        mix: Mapping[Asked, int],
        total: int,
        part: Callable[[str], float] = lambda _resource: 1.0,
        horizon: int = HORIZON,
    ) -> None:
        sums = _sums(mix)
        single, several = [], []
        for (resource, amount), (pods, cpu, memory) in sorted(sums.items()):
            share = pods / total
            chance = share / (share + 1 / horizon)
            worth = round(share * chance * amount * MICRO * part(resource))
            if amount == 1:
                single.append(_Single(resource, worth, round(chance * cpu / pods), round(chance * memory / pods)))
            else:
                several.append(_Several(resource, amount, worth, round(cpu / pods), round(memory / pods)))
        self._single, self._several = tuple(single), tuple(several)

    def of(self, free: Resources) -> int:
        """Millionths of a GPU that those who come are expected to fill of what is free on a machine."""
        free_cpu, free_memory = max(0, free.get(CPU, 0)), max(0, free.get(MEMORY, 0))
        worth = cpu = memory = 0
        for one in self._single:
            if (count := free.get(one.resource, 0)) > 0:
                worth += count * one.worth
                cpu += count * one.cpu
                memory += count * one.memory
        worth = min(_fed(worth, free_cpu, cpu), _fed(worth, free_memory, memory))
        for many in self._several:
            if (times := free.get(many.resource, 0) // many.amount) > 0:
                times = min(times, _times(free_cpu, many.cpu, times), _times(free_memory, many.memory, times))
                worth += times * many.worth
        return worth

    def loss(self, free: Resources, requests: Resources, count: int) -> int:
        """What so many pods take away, in whole thousandths of a GPU; less than 0 where what is left is worth more."""
        left = {**free, **{name: free.get(name, 0) - count * each for name, each in requests.items()}}
        return (self.of(free) - self.of(left)) // PER_MILLI


def wants_gpus(requests: Iterable[tuple[str, int]]) -> bool:
    """Whether a pod asks for a GPU or a part of one."""
    return any(amount > 0 and is_gpu_resource(resource) for resource, amount in requests)


def _sums(mix: Mapping[Asked, int]) -> Mapping[tuple[str, int], Sequence[int]]:
    """(GPU resource, amount) -> pods that ask for it, and all the CPU and memory they ask for."""
    sums: defaultdict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for requests, pods in mix.items():
        amounts = dict(requests)
        for resource, amount in requests:
            if amount > 0 and pods > 0 and is_gpu_resource(resource):
                entry = sums[resource, amount]
                entry[0] += pods
                entry[1] += pods * amounts.get(CPU, 0)
                entry[2] += pods * amounts.get(MEMORY, 0)
    return sums


def _fed(worth: int, free: int, needed: int) -> int:
    """The part of the worth that the free amount of a resource can feed."""
    return worth + worth * min(free - needed, 0) // max(needed, 1)


def _times(free: int, each: int, most: int) -> int:
    return free // each if each else most
