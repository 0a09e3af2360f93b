"""`python -m agent.simulation`: plays drawn histories and tells, a line of JSON each, which laws did not hold."""

import argparse
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from multiprocessing import get_context

import structlog

from agent.simulation.days import lived_days
from agent.simulation.play import Outcome, play
from agent.simulation.profiles import PROFILES, drawn_history
from agent.simulation.shrink import scene, shrunk
from providers.kube.memory import settle_heap

OK, VIOLATED = 0, 1


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 where a law did not hold."""
    said = _parser().parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    if said.days:
        return _lived(said.days, said.seed or 0)
    if said.trace:
        return _traced(said.seed or 0, said.profile)
    if said.shrink:
        return _shrunk(said.seed or 0, said.profile)
    seeds = range(said.seed, said.seed + 1) if said.seed is not None else said.seeds
    broken = 0
    for outcome in _outcomes(seeds, said.profile, said.jobs):
        broken += bool(outcome.violations)
        _say(json.dumps(outcome.row()))
    return VIOLATED if broken else OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m agent.simulation", description=__doc__)
    parser.add_argument("--seeds", type=_seeds, default=range(20), help="A..B: histories A to B, both included")
    parser.add_argument("--seed", type=int, help="one history")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="calm", help="what may go wrong")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--trace", action="store_true", help="tell what happens in the history of --seed")
    parser.add_argument("--shrink", action="store_true", help="leave out what its first violation does not need")
    parser.add_argument("--days", type=int, default=0, help="so many days of one fleet in one process, told day by day")
    return parser


def _seeds(text: str) -> range:
    first, _, last = text.partition("..")
    return range(int(first), int(last or first) + 1)


def _outcomes(seeds: range, profile: str, jobs: int) -> Iterator[Outcome]:
    work = [(seed, profile) for seed in seeds]
    if jobs <= 1:
        yield from map(_played, work)
        return
    with get_context("spawn").Pool(jobs, initializer=_silence) as pool:
        yield from pool.imap(_played, work)


def _silence() -> None:
    settle_heap()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def _played(work: tuple[int, str]) -> Outcome:
    return play(drawn_history(*work))


def _traced(seed: int, profile: str) -> int:
    outcome = play(drawn_history(seed, profile), lambda at_s, words: _say(f"{at_s:9.1f}  {words}"))
    for violation in outcome.violations:
        _say(f"{violation.at_s:9.1f}  VIOLATED {violation.law}: {violation.words}")
    _say(json.dumps(outcome.row()))
    return VIOLATED if outcome.violations else OK


def _shrunk(seed: int, profile: str) -> int:
    history = drawn_history(seed, profile)
    violations = play(history).violations
    if not violations:
        _say(f'"""No law is broken by seed {seed} of the profile {profile}."""')
        return OK
    law = violations[0].law
    _say(scene(shrunk(history, lambda tried: law in {it.law for it in play(tried).violations}), law))
    return VIOLATED


def _lived(days: int, seed: int) -> int:
    broken = 0
    for day in lived_days(days, seed):
        broken += len(day.violations)
        _say(json.dumps(day._asdict()))
    return VIOLATED if broken else OK


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
