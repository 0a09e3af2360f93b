"""How far forecasts were off lately, and what follows for the next: a factor for the median, and one for nine-tenths.

Each forecast that was told leaves a score: the logarithm of the wait that came over the one that was foreseen. The next
is multiplied by a quantile of the latest scores of its queue. At which level that is taken moves up with each
forecast that was not met and down with each that was, in a proportion at which the share that is met stays at its aim
(adaptive conformal inference: Gibbs and Candes, 2021). So in the long run half are met by the median and nine of ten by
the other, whatever the work is like.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import exp, log
from typing import Final

from fleet.explain.gang_facts import StartEstimate

SCORES_KEPT: Final = 60
"""Latest scores of a queue that count."""
ENOUGH: Final = 8
"""Scores of a queue from which on they count; with fewer, those of all queues do."""
STEP: Final = 0.05
"""How far the level moves by one forecast at most."""
LEAST_S: Final = 60.0
"""Added to every wait before it is compared, so that one that is nearly nothing can be corrected as well."""
OPEN_MOST: Final = 10_000
"""Forecasts that may be waiting to be judged; of more the oldest are not judged."""
MEDIAN, NINE_TENTHS = 0.5, 0.9
LATER_AFTER, SOONER_AFTER = 8, 1_000
"""Judged estimates after which the next ones move by half of what those tell, away and nearer.

Whoever relies on an instant loses by one that is too early. Estimates of one calm time, as those of one jam, come true
or fail together: after a quiet week all would be so near that the next jam missed every one of them.
"""
EVERYBODY: Final = ""
"""In place of a queue: all of them."""


@dataclass(slots=True)
class Scores:
    """What the latest forecasts of one queue have taught about one of the two instants."""

    aim: float
    level: float
    latest: deque[float] = field(default_factory=lambda: deque(maxlen=SCORES_KEPT))
    judged: int = 0

    def learn(self, *, met: bool) -> None:
        """Moves the level."""
        self.judged += 1
        self.level = min(1.0, max(0.0, self.level + STEP * (self.aim - 1.0 if met else self.aim)))

    def factor(self, least: Iterable[float]) -> float:
        """Returns the quantile of the scores; `least` are what those of gangs that wait still will be at least.

        They are censored, and the quantile is that of the product-limit estimate (Kaplan and Meier, 1958): without
        them only gangs that started early would count. With too few scores it is 0: nothing is corrected.
        """
        marks = sorted([*((score, False) for score in self.latest), *((score, True) for score in least)])
        if len(self.latest) < ENOUGH:
            return 0.0
        left = 1.0
        for number, (score, censored) in enumerate(marks):
            left *= 1.0 if censored else 1.0 - 1.0 / (len(marks) - number)
            if not censored and 1.0 - left > self.level - 1e-9:
                return score
        return marks[-1][0]


@dataclass(slots=True)
class _Open:
    """A forecast that was told, before and after its correction, and which of its instants are not judged yet."""

    queue: str
    raw: StartEstimate
    told: StartEstimate
    left: set[float] = field(default_factory=lambda: {MEDIAN, NINE_TENTHS})

    def score(self, aim: float, began_s: float) -> Iterator[float]:
        """Yields the score that it has if its gang has begun then; none where nothing was foreseen."""
        at_s = self.raw.p50_s if aim == MEDIAN else self.raw.p90_s
        if at_s is not None:
            made_s = self.raw.made_at_s
            yield log((max(0.0, began_s - made_s) + LEAST_S) / (max(0.0, at_s - made_s) + LEAST_S))


@dataclass(slots=True)
class ForecastCorrection:
    """Corrects forecasts by those before, and learns from what came of them. For one thread."""

    scores: dict[tuple[str, float], Scores] = field(default_factory=dict)
    """(queue, aim) -> its scores."""
    _open: "OrderedDict[str, _Open]" = field(default_factory=OrderedDict)

    def told(self, uid: str, queue: str, raw: StartEstimate) -> StartEstimate:
        """Returns what to tell of a gang; the first that is told of it will be judged."""
        if raw.p50_s is None:
            return raw
        p50_s = self._corrected(queue, MEDIAN, raw.made_at_s, raw.p50_s)
        late_s = raw.p90_s if raw.p90_s is None else self._corrected(queue, NINE_TENTHS, raw.made_at_s, raw.p90_s)
        judged = self._of(queue, MEDIAN).judged
        basis = f"{raw.basis}, corrected by {judged} forecasts of this queue" if judged else raw.basis
        found = replace(raw, p50_s=p50_s, p90_s=None if late_s is None else max(p50_s, late_s), basis=basis)
        if uid not in self._open:
            self._open[uid] = _Open(queue, raw, found)
            while len(self._open) > OPEN_MOST:
                self._open.popitem(last=False)
        return found

    def judge(self, started: Mapping[str, float], gone: frozenset[str], now_s: float) -> None:
        """Learns from gangs that have started since (uid -> when), and from forecasts that have passed.

        `gone` are gangs that ended or were taken away without starting: of those nothing is learned.
        """
        for uid, told in list(self._open.items()):
            began_s = started.get(uid)
            if uid in gone and began_s is None:
                del self._open[uid]
                continue
            for aim, met in _verdicts(told, began_s, now_s):
                for queue in (told.queue, EVERYBODY):
                    self._of(queue, aim).learn(met=met)
            if began_s is not None:
                self._note(told, began_s)
                del self._open[uid]

    def _note(self, told: _Open, began_s: float) -> None:
        for aim in (MEDIAN, NINE_TENTHS):
            for queue in (told.queue, EVERYBODY):
                self._of(queue, aim).latest.extend(told.score(aim, began_s))

    def _of(self, queue: str, aim: float) -> Scores:
        return self.scores.setdefault((queue, aim), Scores(aim, aim))

    def _corrected(self, queue: str, aim: float, made_at_s: float, at_s: float) -> float:
        own = self._of(queue, aim)
        taught, whose = (own, queue) if len(own.latest) >= ENOUGH else (self._of(EVERYBODY, aim), EVERYBODY)
        waiting = (it for it in self._open.values() if whose in {it.queue, EVERYBODY} and it.raw.made_at_s < made_at_s)
        least = (score for it in waiting for score in it.score(aim, made_at_s))
        factor = taught.factor(least)
        factor *= taught.judged / (taught.judged + (LATER_AFTER if factor > 0 else SOONER_AFTER))
        wait_s = (max(0.0, at_s - made_at_s) + LEAST_S) * exp(factor) - LEAST_S
        return made_at_s + max(0.0, wait_s)


def _verdicts(told: _Open, began_s: float | None, now_s: float) -> Iterator[tuple[float, bool]]:
    """Yields (aim, whether it was met) of what can be judged now and was not before."""
    end_s = now_s if began_s is None else began_s
    for aim, at_s in ((MEDIAN, told.told.p50_s), (NINE_TENTHS, told.told.p90_s)):
        if aim in told.left and at_s is not None and (began_s is not None or end_s > at_s):
            told.left.discard(aim)
            yield aim, end_s <= at_s
