"""What commands answer that look by themselves, without the agent: at files of a fleet, and at the cluster."""

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from agent.answers import NothingSo, price_words
from agent.cli import exits
from agent.cli.look import Look, answered, look_at, look_away
from agent.cli.validate import WrongCluster, declared_in, own_files, region_for
from model.fleet import Fleet
from model.loader import load
from model.plain_text import plain_lines


def _node(fleet: Fleet, look: Look, name: str) -> Iterable[str]:
    from agent.answers.node import node_lines

    return node_lines(fleet, look.snapshot, name)


def _pool(fleet: Fleet, look: Look, name: str) -> Iterable[str]:
    from agent.answers.pool import pool_lines

    snapshot = look.snapshot
    prices = snapshot.catalog.priced_at_s, snapshot.catalog.price_source, look.agent_priced_at_s
    return pool_lines(fleet, snapshot, name, price_words(snapshot.now_s, *prices))


def _pod(fleet: Fleet, look: Look, name: str) -> Iterable[str]:
    from agent.answers.pod import pod_lines

    return pod_lines(fleet, look.snapshot, name)


def _buffer(fleet: Fleet, look: Look, name: str) -> Iterable[str]:
    from agent.answers.buffer import buffer_lines

    return buffer_lines(fleet, look.snapshot, name)


_ANSWERS: Final[Mapping[str, Callable[[Fleet, Look, str], Iterable[str]]]] = {
    "nodes": _node,
    "pools": _pool,
    "pods": _pod,
    "buffers": _buffer,
}


def _check_declared(what: str, fleet: Fleet, name: str) -> None:
    """Raise NothingSo, before any cluster is asked, for what the files would have to declare."""
    if what == "pools":
        from agent.answers.pool import check_pool

        check_pool(fleet, name)
    elif what == "buffers":
        from agent.answers.buffer import buffers_called

        buffers_called(fleet, name)


def explain_here(
    what: str, name: str, folder: Path | None, region: str, cluster: str, place: tuple[Path | None, str | None]
) -> int:
    """Print the explanation of one of `nodes`, `pools`, `pods` or `buffers`; the exit code.

    `place` is a kubeconfig and a context. Without a folder it is the one that the user stands in; of nodes there is
    something to say without any files. `cluster` is the Cluster that is meant, where the folder holds several.
    """

    def answer() -> int:
        """Print what is said of it; the exit code. Raises `NothingSo` for what the files do not declare."""
        if what == "nodes" and folder is None and not cluster:
            from agent.answers.node import node_lines

            told: Iterable[str] = node_lines(None, look_at(*place, region_for(region, {})).snapshot, name)
        else:
            fleet, where = _fleet(folder, region, cluster)
            _check_declared(what, fleet, name)
            told = _ANSWERS[what](fleet, look_at(*place, where), name)
        sys.stdout.write(plain_lines(told) + "\n")
        return exits.OK

    return _told(answer)


def offers_here(
    ask: tuple[str, int, str, str, str],
    folder: Path | None,
    region: str,
    cluster: str,
    place: tuple[Path | None, str | None] | None,
    show: Callable[[Mapping[str, Any]], int],
) -> int:
    """Show what could serve the GPUs (`GpuRequest`) by the files; the exit code. No place: no cluster."""
    from agent.answers.offers import offers_told
    from fleet.explain.offers import GpuRequest, UnknownGpu

    def answer() -> int:
        """Show the offers by the region's prices; the exit code. Raises `NothingSo` for GPUs that nobody knows."""
        fleet, where = _fleet(folder, region, cluster)
        look = look_away(where) if place is None else look_at(*place, where)
        asked, priced_at_s = place is not None, look.agent_priced_at_s
        try:
            request = GpuRequest(*ask)
            told = offers_told(fleet, look.snapshot, request, asked_cluster=asked, agent_priced_at_s=priced_at_s)
        except UnknownGpu as error:
            raise NothingSo(str(error)) from None
        return show(told)

    return _told(answer)


def _fleet(folder: Path | None, region: str, cluster: str) -> tuple[Fleet, str]:
    """What a folder declares, of the Cluster that is meant, and the region of its offers."""
    files, meant = declared_in(folder or Path(), cluster)
    return load(files, cluster=meant), region_for(region, own_files(files, meant))


def _told(answer: Callable[[], int]) -> int:
    try:
        return answered(answer)
    except (NothingSo, WrongCluster) as error:
        exits.complain(error)
        return exits.ERROR
