"""Rolling layouts out: the configuration that mig-manager reads is kept as declared, idle machines are cut anew."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import yaml

from fleet.actions import Action, PublishLayouts, SaveClaim, claim_subject
from fleet.fence import Decided, DecisionFailed, each
from fleet.mig.layouts import cut_anew, pool_layouts
from fleet.placement.inventory import build_capacity
from fleet.placement.plan import Recut
from fleet.snapshot import LAYOUTS, Claim, Snapshot
from model import labels
from model.fleet import Fleet
from model.index import Index, derived, followed_each
from model.mig.layouts import mig_parted_config

REPUBLISHED_AFTER_S: Final = 300.0
"""The configuration is written again after this long: somebody may have changed or deleted it."""


def decide(fleet: Fleet, snapshot: Snapshot) -> Sequence[Decided]:
    """Publishes the layouts, and re-cuts idle machines to their pool's first; those with work keep theirs till then."""
    return [*_publish(fleet, snapshot), *_recut_stale(fleet, snapshot)]


def _publish(fleet: Fleet, snapshot: Snapshot) -> Iterator[Action]:
    """Writes the mig-parted configuration of all layouts: where it has changed, was refused, and now and then.

    What is declared no more stays in it as long as a node carries it, or a machine on its way will.
    """
    known, file = snapshot.layouts, _config(fleet.index, fleet)
    if known is None or file is None or LAYOUTS in snapshot.busy:
        return
    on_nodes = (node.labels.get(labels.MIG_CONFIG, "") for node in snapshot.nodes.values())
    carried = {*on_nodes, *(claim.layout for claim in snapshot.claims.values())} - {""} - file.names
    new = known.config != file.text or not carried <= known.carried
    if new or snapshot.now_s >= known.at_s + REPUBLISHED_AFTER_S:
        yield PublishLayouts(file.text, frozenset(carried))


class _LayoutsFile(NamedTuple):
    text: str
    names: frozenset[str]


@derived()
def _config(_index: Index, fleet: Fleet) -> _LayoutsFile | None:
    if not fleet.mig_layouts:
        return None
    config = mig_parted_config(layout for _, layout in sorted(fleet.mig_layouts.items()))
    return _LayoutsFile(yaml.safe_dump(config, sort_keys=True), frozenset(config["mig-configs"]))


@followed_each()
def _layouts(claim: Claim) -> str | None:
    return claim.layout or None


def _recut_stale(fleet: Fleet, snapshot: Snapshot) -> Sequence[Decided]:
    claims = snapshot.claims
    cut = ((claim_subject(name), claims[name]) for name in _layouts(snapshot.index, claims))
    looked = list(each(snapshot, cut, lambda claim: _if_stale(fleet, claim)))
    stale = {it.name for it in looked if isinstance(it, Claim)}
    failed = [it for it in looked if isinstance(it, DecisionFailed)]
    return [*_recut(fleet, snapshot, stale), *failed] if stale else failed


def _if_stale(fleet: Fleet, claim: Claim) -> Iterable[Claim]:
    pool = fleet.node_pools.get(claim.node_pool)
    allowed = pool_layouts(fleet, pool) if pool else ()
    return [claim] if allowed and claim.layout not in allowed else ()


def _recut(fleet: Fleet, snapshot: Snapshot, stale: set[str]) -> Iterator[Decided]:
    """Re-cuts each machine to the first layout that it could have, in the pool's order."""
    first: dict[str, Recut] = {}
    for recut in build_capacity(fleet, snapshot).recuts:
        if recut.claim in stale and claim_subject(recut.claim) not in snapshot.busy:
            first.setdefault(recut.claim, recut)
    subjects = ((claim_subject(name), recut) for name, recut in first.items())
    yield from each(snapshot, subjects, lambda recut: [_cut_to(snapshot, recut)])


def _cut_to(snapshot: Snapshot, recut: Recut) -> Action:
    return SaveClaim(cut_anew(snapshot.claims[recut.claim], recut.layout, recut.gpus, snapshot.now_s))
