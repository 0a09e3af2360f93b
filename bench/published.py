"""Policies of the paper "Beware of Fragmentation" (USENIX ATC 2023) and one between it and ours, to compare with.

All choose the highest whole score from 0 to 100, and the lowest node name among equals, as their simulator does.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from bench.reference.fragmentation import WHOLE_MILLI, Ints, Request, States

POPULAR = 0.95
"""Typical requests are the most frequent ones that make up this part of all."""
LARGEST_CPU_MILLI, LARGEST_GPU_MILLI = 128_000, 8_000
"""What the paper's best fit scales free CPU and GPUs by."""
_MICRO = 1000


def typical(mix: Mapping[Request, int]) -> list[tuple[Request, float]]:
    """The most popular requests, whatever their memory, with their part of all typical ones."""
    counts: Counter[Request] = Counter()
    for request, count in mix.items():
        counts[Request(request.cpu_milli, 0, request.gpus, request.gpu_milli, request.models)] += count
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    found, seen = [], 0
    for request, count in ordered:
        if seen >= POPULAR * counts.total():
            break
        found.append((request, count))
        seen += count
    return [(request, count / seen) for request, count in found]


class _Scored:
    """The score of a growth of fragmentation: its sigmoid in whole percent."""

    def rank(self, before: Ints, after: Ints) -> Ints:
        gained = (after - before) / (WHOLE_MILLI * _MICRO)
        return -np.floor(100 / (1 + np.exp(-gained))).astype(np.int64)


class Fgd(_Scored):
    """Minus the fragmented millionths of a GPU: for each typical request the idle share that it cannot use.

    All of a node where it does not fit, else the devices with too little left; all of it too for requests without GPUs.
    """

    def __init__(self, mix: Mapping[Request, int], models: Sequence[str]) -> None:
        self._typical = typical(mix)
        self.models = models

    def worth(self, states: States) -> Ints:
        total: Ints = np.zeros(states.free_milli.shape[:-1], np.int64)
        idle = states.free_milli.sum(axis=-1)
        for request, share in self._typical:
            enough = states.free_milli >= request.gpu_milli
            fits = (enough.sum(axis=-1) >= request.gpus) & (states.cpu_milli >= request.cpu_milli)
            if request.models:
                fits &= np.array([request.runs_on(model) for model in self.models])[states.model]
            lost = np.where(enough, 0, states.free_milli).sum(axis=-1) if request.gpus else idle
            total -= np.where(fits, lost, idle) * round(share * _MICRO * 1000) // 1000
        return total


class RepeatedFit(_Scored):
    """The same, but what counts is how many of a typical request fit one after the other; only requests for GPUs."""

    def __init__(self, mix: Mapping[Request, int], models: Sequence[str]) -> None:
        self._typical = typical({request: count for request, count in mix.items() if request.gpus})
        self.models = models

    def worth(self, states: States) -> Ints:
        total: Ints = np.zeros(states.free_milli.shape[:-1], np.int64)
        idle = states.free_milli.sum(axis=-1)
        for request, share in self._typical:
            times = (states.free_milli // request.gpu_milli).sum(axis=-1) // request.gpus
            if request.cpu_milli:
                times = np.minimum(times, states.cpu_milli // request.cpu_milli)
            if request.models:
                times = times * np.array([request.runs_on(model) for model in self.models])[states.model]
            total -= (idle - times * request.total_gpu_milli) * round(share * _MICRO * 1000) // 1000
        return total


class BestFit:
    """Least left: half the free CPU and half the free GPUs, each by the largest node's."""

    def __init__(self, mix: Mapping[Request, int], models: Sequence[str]) -> None:
        self.models = models

    def worth(self, states: States) -> Ints:
        """Millionths of the largest node that are free."""
        cpu = states.cpu_milli * (1_000_000 // 2) // LARGEST_CPU_MILLI
        left: Ints = cpu + states.free_milli.sum(axis=-1) * (1_000_000 // 2) // LARGEST_GPU_MILLI
        return left

    def rank(self, before: Ints, after: Ints) -> Ints:
        """What is left after, in whole percent, rounded up as the score is rounded down."""
        return -(-after // 10_000)
