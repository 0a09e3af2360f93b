"""Problems of giving machines back, drawn at random, and a checker that knows nothing of how a plan is found."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from hypothesis import strategies as st

from fleet.optimize.consolidate import (
    ConsolidationProblem,
    ConsolidationRules,
    ConsolidationSolution,
    ConsolidationStep,
    Limit,
    PodBlock,
    PodClass,
    ReplacementKind,
    StandingMachine,
)

RESOURCES = ("cpu", "gpu")
TOLERANCE = 1e-6


def broken(
    problem: ConsolidationProblem, answer: ConsolidationSolution, steps: Iterable[ConsolidationStep] | None = None
) -> list[str]:
    """What is wrong with an answer, or with some of its steps alone."""
    taken = list(answer.steps if steps is None else steps)
    return [*_machines(problem, taken), *_moves(problem, taken), *_rooms(problem, taken), *_bounds(problem, taken)] + [
        complaint for step in taken for complaint in _rules(problem, step)
    ]


def _machines(problem: ConsolidationProblem, steps: list[ConsolidationStep]) -> Iterable[str]:
    standing = {it.name: it for it in problem.standing}
    removed = [name for step in steps for name in step.removed]
    for name, count in Counter(removed).items():
        if count > 1:
            yield f"{name} goes {count} times"
        if name not in standing or not standing[name].may_go:
            yield f"{name} may not go"
    if len({it.name for step in steps for it in step.bought} | standing.keys()) != len(standing) + sum(
        len(step.bought) for step in steps
    ):
        yield "two machines of one name"


def _moves(problem: ConsolidationProblem, steps: list[ConsolidationStep]) -> Iterable[str]:
    removed = {name for step in steps for name in step.removed}
    moved: dict[str, Counter[tuple[str, str]]] = {}
    for step in steps:
        for move in step.moves:
            moved.setdefault(move.block, Counter())[move.origin, move.pod_class] += move.pods
            if move.target in removed:
                yield f"{move.block} moves to {move.target}, which goes"
            if move.pods <= 0:
                yield f"{move.block} moves no pods"
    for block in problem.blocks:
        places = Counter({(m, c): pods for m, held in block.places.items() for c, pods in held.items() if pods})
        on_removed = Counter({key: pods for key, pods in places.items() if key[0] in removed})
        wanted = (places if block.in_gangs else on_removed) if on_removed else Counter()
        if moved.pop(block.name, Counter()) != wanted:
            yield f"{block.name} moves otherwise than whole or off what goes"
    for name in moved:
        yield f"{name} is no block"


def _rooms(problem: ConsolidationProblem, steps: list[ConsolidationStep]) -> Iterable[str]:
    classes = {it.name: it for it in problem.classes}
    kinds = {it.name: it for it in problem.kinds}
    of_kind = {it.name: it.kind for it in problem.standing} | {b.name: b.kind for s in steps for b in s.bought}
    domain = {it.name: it.domain for it in problem.standing} | {
        b.name: kinds[b.kind].domain for s in steps for b in s.bought
    }
    free = {it.name: Counter(it.free) for it in problem.standing}
    free |= {b.name: Counter(kinds[b.kind].capacity) for s in steps for b in s.bought}
    held: dict[str, Counter[str]] = {}
    for step in steps:
        for move in step.moves:
            for resource, amount in classes[move.pod_class].requests.items():
                free[move.origin][resource] += amount * move.pods
                free[move.target][resource] -= amount * move.pods
            held.setdefault(move.target, Counter())[move.pod_class] += move.pods
            if of_kind[move.target] not in classes[move.pod_class].kinds:
                yield f"{move.pod_class} may not stand on {move.target}"
    removed = {name for step in steps for name in step.removed}
    for name, left in free.items():
        if name not in removed and min(left.values(), default=0) < 0:
            yield f"{name} is overfull: {dict(left)}"
    for bought in (it for step in steps for it in step.bought):
        if dict(held.get(bought.name, {})) != dict(bought.pods):
            yield f"{bought.name} gets other pods than it says"
        if bought.kind not in bought.instead:
            yield f"{bought.name} is none of what would do instead"
    yield from _domains(problem, steps, domain)


def _domains(problem: ConsolidationProblem, steps: list[ConsolidationStep], domain: Mapping[str, str]) -> Iterable[str]:
    for block in problem.blocks:
        domains = {domain[move.target] for step in steps for move in step.moves if move.block == block.name}
        if block.keeps_domain and len(domains) > 1:
            yield f"{block.name} stands in {domains}"


def _bounds(problem: ConsolidationProblem, steps: list[ConsolidationStep]) -> Iterable[str]:
    kinds = {it.name: it for it in problem.kinds}
    pools = Counter(it.pool for it in problem.standing if it.name in {name for s in steps for name in s.removed})
    for pool, most in problem.budgets.items():
        if pools[pool] > most:
            yield f"{pools[pool]} machines of {pool} go"
    bought = Counter(it.kind for step in steps for it in step.bought)
    for name, count in bought.items():
        most = kinds[name].most
        if most is not None and count > most:
            yield f"{count} of {name} are bought"
    if problem.rules.most_bought is not None and bought.total() > problem.rules.most_bought:
        yield f"{bought.total()} machines are bought"
    for limit in problem.limits:
        if sum(_counted(limit.counted, kinds[name]) * n for name, n in bought.items() if name in limit.kinds) > (
            limit.most + TOLERANCE
        ):
            yield f"{limit.name} is exceeded"


def _counted(what: str, kind: ReplacementKind) -> float:
    known = {"machines": 1.0, "usd_h": kind.price_usd_h}
    return known[what] if what in known else kind.capacity.get(what, 0)


def _rules(problem: ConsolidationProblem, step: ConsolidationStep) -> Iterable[str]:
    standing = {it.name: it for it in problem.standing}
    kinds = {it.name: it for it in problem.kinds}
    goes = sum(standing[name].price_usd_h for name in step.removed)
    comes = sum(kinds[it.kind].price_usd_h for it in step.bought)
    worst = sum(kinds[it.kind].dearest_usd_h for it in step.bought)
    moved = Counter[str]()
    for move in step.moves:
        moved[move.block] += move.pods
    moving = sum(problem.disruption_usd_h(it, moved[it.name]) for it in problem.blocks if moved[it.name])
    if abs(goes - comes - step.saving_usd_h) > TOLERANCE or abs(moving - step.disruption_usd_h) > TOLERANCE:
        yield f"a step says {step.saving_usd_h} and {step.disruption_usd_h}: it is {goes - comes} and {moving}"
    if step.objective_usd_h <= 0:
        yield "a step does not pay"
    if step.bought and worst >= goes:
        yield "at worst a step costs more"
    swap = len(step.removed) == len(step.bought) == 1
    if swap and standing[step.removed[0]].spot and kinds[step.bought[0].kind].spot:
        types = {kinds[name].type or name for name in step.bought[0].instead}
        if len(types) < problem.rules.spot_types:
            yield "spot for spot with too few types"


# -- problems ---------------------------------------------------------------------------------------------------------

_SIZES = ("small", "medium", "large")
_CAPACITY = {"small": {"cpu": 4, "gpu": 1}, "medium": {"cpu": 8, "gpu": 2}, "large": {"cpu": 16, "gpu": 8}}


@st.composite
def problems(draw: st.DrawFn, *, gangs: bool = True, rules: bool = True) -> ConsolidationProblem:
    """A handful of machines of three sizes, filled with blocks; some bounds on what goes and what comes."""
    domains = ("a", "b") if gangs else ("a",)
    classes = _classes(draw, domains)
    prices = {size: draw(st.integers(1, 12)) * 1.0 for size in _SIZES}
    kinds = tuple(_kind(draw, size, domain, prices[size], rules=rules) for size in _SIZES for domain in domains)
    free: dict[str, dict[str, int]] = {}
    kind_of = {}
    for number in range(draw(st.integers(1, 7))):
        size, domain = draw(st.sampled_from(_SIZES)), draw(st.sampled_from(domains))
        free[f"machine-{number}"] = dict(_CAPACITY[size])
        kind_of[f"machine-{number}"] = f"{size}-{domain}"
    blocks = []
    for number in range(draw(st.integers(0, 7))):
        places = _placed(draw, classes, free, kind_of, most=3 if gangs else 1)
        if places:
            blocks.append(_block(draw, f"block-{number}", places, kind_of, gangs=gangs))
    names = frozenset(it.name for it in kinds)
    return ConsolidationProblem(
        RESOURCES,
        classes,
        tuple(_standing(draw, name, kind_of[name], prices, left, rules=rules) for name, left in free.items()),
        tuple(blocks),
        kinds,
        {"pool-a": draw(st.integers(0, 4))} if rules and draw(st.booleans()) else {},
        (Limit("usd", "usd_h", draw(st.integers(0, 20)), names),) if rules and draw(st.booleans()) else (),
        _drawn_rules(draw, rules=rules),
    )


def _classes(draw: st.DrawFn, domains: Sequence[str]) -> tuple[PodClass, ...]:
    """One to three classes of pods, each for machines of some sizes."""
    return tuple(
        PodClass(
            f"class-{number}",
            {"cpu": draw(st.integers(0, 5)), "gpu": draw(st.integers(0, 2))},
            frozenset(
                f"{size}-{domain}" for size in draw(st.sets(st.sampled_from(_SIZES), min_size=1)) for domain in domains
            ),
        )
        for number in range(draw(st.integers(1, 3)))
    )


def _kind(draw: st.DrawFn, size: str, domain: str, price: float, *, rules: bool) -> ReplacementKind:
    return ReplacementKind(
        f"{size}-{domain}",
        price,
        _CAPACITY[size],
        domain,
        draw(st.sampled_from((None, None, None, 1))) if rules else None,
        price * draw(st.sampled_from((1, 1, 1.5))) if rules else None,
        draw(st.booleans()) if rules else False,
    )


def _block(
    draw: st.DrawFn, name: str, places: dict[str, dict[str, int]], kind_of: dict[str, str], *, gangs: bool
) -> PodBlock:
    whole = gangs and draw(st.booleans())
    domains = {kind_of[machine][-1] for machine in places}
    one_domain = whole and len(domains) == 1 and draw(st.booleans())
    usd = draw(st.sampled_from((None, None, 0.0, 2.0, 30.0)))
    return PodBlock(name, places, usd, whole, one_domain)


def _standing(
    draw: st.DrawFn, name: str, kind: str, prices: dict[str, float], left: dict[str, int], *, rules: bool
) -> StandingMachine:
    return StandingMachine(
        name,
        kind,
        prices[kind[:-2]],
        left,
        draw(st.sampled_from(("pool-a", "pool-b"))),
        kind[-1],
        draw(st.booleans()) if rules else False,
        draw(st.sampled_from((True, True, True, False))) if rules else True,
    )


def _drawn_rules(draw: st.DrawFn, *, rules: bool) -> ConsolidationRules:
    return ConsolidationRules(
        draw(st.sampled_from((0.0, 0.1, 1.0))),
        spot_types=draw(st.sampled_from((1, 2, 15))),
        most_bought=draw(st.sampled_from((None, None, 1, 2))) if rules else None,
    )


def _placed(
    draw: st.DrawFn, classes: tuple[PodClass, ...], free: dict[str, dict[str, int]], kind_of: dict[str, str], most: int
) -> dict[str, dict[str, int]]:
    """Places on up to `most` machines, which are taken off their room."""
    places: dict[str, dict[str, int]] = {}
    for machine in draw(st.lists(st.sampled_from(sorted(free)), min_size=1, max_size=most, unique=True)):
        pods = draw(st.sampled_from(classes))
        if kind_of[machine] not in pods.kinds:
            continue
        room = min((free[machine][r] // amount for r, amount in pods.requests.items() if amount), default=2)
        count = min(room, draw(st.integers(1, 2)))
        if count:
            places[machine] = {pods.name: count}
            for resource, amount in pods.requests.items():
                free[machine][resource] -= amount * count
    return places
