"""How far forecasts were off lately, and what follows for the next: two factors a queue, for median and nine-tenths.

A forecast counts as met when its gang has started by then. A factor moves up by each that was not met and down by each
that was, in a proportion at which the share that is met stays at its aim (adaptive conformal inference: Gibbs and
Candes, 2021). So in the long run half are met by the median and nine of ten by the other, whatever the work is like.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import exp
from typing import Final

from fleet.explain.gang_facts import StartEstimate

STEP: Final = 0.2
"""How far (natural logarithm) a factor moves by one forecast at most."""
LEAST_S: Final = 60.0
"""Added to every forecast wait before it is multiplied, so that one that is nearly nothing can be corrected as well."""
FURTHEST: Final = 7.0
"""Bound of the logarithm of a factor: a thousandfold."""
OPEN_MOST: Final = 10_000
"""Forecasts that may be waiting to be judged; of more the oldest are not judged."""
MEDIAN, NINE_TENTHS = 0.5, 0.9


@dataclass(frozen=True, slots=True)
class Factors:
    """What forecast waits of one queue are multiplied by (logarithms), and how many forecasts have taught that."""

    median: float = 0.0
    nine_tenths: float = 0.0
    judged: int = 0


@dataclass(slots=True)
class _Open:
    """A forecast that was told, of which one or both halves have not been judged yet."""

    queue: str
    told: StartEstimate
    median_open: bool = True
    nine_tenths_open: bool = True


@dataclass(slots=True)
class ForecastCorrection:
    """Corrects forecasts by those before, and learns from what came of them. For one thread."""

    factors: dict[str, Factors] = field(default_factory=dict)
    _open: "OrderedDict[str, _Open]" = field(default_factory=OrderedDict)

    def told(self, uid: str, queue: str, raw: StartEstimate) -> StartEstimate:
        """Returns what to tell of a gang; the first that is told of it will be judged."""
        if raw.p50_s is None:
            return raw
        by = self.factors.get(queue, Factors())
        p50_s = _further(raw.made_at_s, raw.p50_s, by.median)
        p90_s = None if raw.p90_s is None else max(p50_s, _further(raw.made_at_s, raw.p90_s, by.nine_tenths))
        basis = f"{raw.basis}, corrected by {by.judged} forecasts of this queue" if by.judged else raw.basis
        found = replace(raw, p50_s=p50_s, p90_s=p90_s, basis=basis)
        if uid not in self._open:
            self._open[uid] = _Open(queue, found)
            while len(self._open) > OPEN_MOST:
                self._open.popitem(last=False)
        return found

    def judge(self, started: Mapping[str, float], gone: frozenset[str], now_s: float) -> None:
        """Learns from gangs that have started since (uid -> when), and from forecasts that have passed.

        `gone` are gangs that ended or were taken away without starting: of those nothing is learned.
        """
        for uid, told in list(self._open.items()):
            if uid in gone and uid not in started:
                del self._open[uid]
                continue
            began_s = started.get(uid)
            for target, met in _verdicts(told, began_s, now_s):
                self._learn(told.queue, target, met=met)
            if began_s is not None:
                del self._open[uid]

    def _learn(self, queue: str, target: float, *, met: bool) -> None:
        by = self.factors.get(queue, Factors())
        moved = STEP * (target - 1.0 if met else target)
        if target == MEDIAN:
            by = replace(by, median=_bounded(by.median + moved), judged=by.judged + 1)
        else:
            by = replace(by, nine_tenths=_bounded(by.nine_tenths + moved))
        self.factors[queue] = by


def _verdicts(told: _Open, began_s: float | None, now_s: float) -> Iterator[tuple[float, bool]]:
    """Yields (aim, whether it was met) of what can be judged now and was not before."""
    end_s = now_s if began_s is None else began_s
    p50_s, p90_s = told.told.p50_s, told.told.p90_s
    if told.median_open and p50_s is not None and (began_s is not None or end_s > p50_s):
        told.median_open = False
        yield MEDIAN, end_s <= p50_s
    if told.nine_tenths_open and p90_s is not None and (began_s is not None or end_s > p90_s):
        told.nine_tenths_open = False
        yield NINE_TENTHS, end_s <= p90_s


def _further(made_at_s: float, at_s: float, by: float) -> float:
    if not by:
        return at_s
    return made_at_s + max(0.0, (at_s - made_at_s + LEAST_S) * exp(by) - (LEAST_S if by < 0 else 0.0))


def _bounded(value: float) -> float:
    return max(-FURTHEST, min(FURTHEST, value))
