"""Rolling layouts out: what mig-manager and the device plugin read is kept as declared, idle machines are cut anew."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import yaml

from fleet.actions import Action, PublishLayouts, SaveClaim, claim_subject
from fleet.catalog import InstanceType
from fleet.disruption.layout_rollout import roll_out
from fleet.fence import Decided, DecisionFailed, each
from fleet.mig.layouts import pool_layouts
from fleet.mig.mixed_cuts import follows, mixed_layout_of
from fleet.placement.inventory import build_capacity
from fleet.placement.plan import Recut
from fleet.snapshot import LAYOUTS, Claim, Snapshot
from fleet.snapshot.lookups import machines_held
from model import labels
from model.fleet import Fleet
from model.gpu_sharing import plugin_configs
from model.index import Index, derived, followed_each
from model.kinds import MigLayout
from model.mig.layouts import mig_parted_config

REPUBLISHED_AFTER_S: Final = 300.0
"""The configuration is written again after this long: somebody may have changed or deleted it."""


def decide(fleet: Fleet, snapshot: Snapshot) -> Sequence[Decided]:
    """Publishes the layouts, re-cuts idle machines to their pool's first, and others where the pool rolls them out."""
    return [*_publish(fleet, snapshot), *_recut_stale(fleet, snapshot)]


def _publish(fleet: Fleet, snapshot: Snapshot) -> Iterator[Action]:
    """Writes the configurations of all layouts and ways of sharing: where they changed, were refused, and now and then.

    What is declared no more stays in it as long as a node carries it, or a machine on its way will.
    """
    known, files = snapshot.layouts, _files_now(fleet, snapshot)
    if known is None or not (files.layouts or files.sharing) or LAYOUTS in snapshot.busy:
        return
    carried = {*_named_by_nodes(snapshot), *(claim.layout for claim in snapshot.claims.values())} - {""} - files.names
    new = (known.config, known.sharing) != (files.layouts, files.sharing) or not carried <= known.carried
    if new or snapshot.now_s >= known.at_s + REPUBLISHED_AFTER_S:
        yield PublishLayouts(files.layouts, frozenset(carried), files.sharing)


def _named_by_nodes(snapshot: Snapshot) -> Iterator[str]:
    for node in snapshot.nodes.values():
        yield node.labels.get(labels.MIG_CONFIG, "")
        yield node.labels.get(labels.DEVICE_PLUGIN_CONFIG, "")


class _GpuOperatorFiles(NamedTuple):
    layouts: str
    """Of mig-parted; empty without layouts."""
    sharing: Mapping[str, str]
    """Of the device plugin, by name."""
    names: frozenset[str]


def _files_now(fleet: Fleet, snapshot: Snapshot) -> _GpuOperatorFiles:
    return _files(fleet.index, fleet, _mixed_layouts(snapshot.index, snapshot.claims, snapshot.catalog.types))


@followed_each()
def _mixed_layouts(claim: Claim, types: Mapping[str, InstanceType]) -> MigLayout | None:
    return mixed_layout_of(claim, types.get(claim.capacity_pool.instance_type))


@derived()
def _files(_index: Index, fleet: Fleet, mixed: Mapping[str, MigLayout]) -> _GpuOperatorFiles:
    sharing = plugin_configs(pool.spec.sharing for pool in fleet.node_pools.values())
    if not fleet.mig_layouts:
        return _GpuOperatorFiles("", sharing, frozenset(sharing))
    config = mig_parted_config([*fleet.mig_layouts.values(), *fleet.former_layouts.values(), *mixed.values()])
    text = yaml.dump(config, Dumper=yaml.CSafeDumper, sort_keys=True)
    return _GpuOperatorFiles(text, sharing, frozenset((*config["mig-configs"], *sharing)))


@followed_each()
def _layouts(claim: Claim) -> str | None:
    return claim.layout or None


def _recut_stale(fleet: Fleet, snapshot: Snapshot) -> Sequence[Decided]:
    claims = snapshot.claims
    cut = ((claim_subject(name), claims[name]) for name in _layouts(snapshot.index, claims))
    looked = list(each(snapshot, cut, lambda claim: _if_stale(fleet, snapshot, claim)))
    stale = {it.name: it for it in looked if isinstance(it, Claim)}
    failed = [it for it in looked if isinstance(it, DecisionFailed)]
    if not stale:
        return failed
    rolled = [*roll_out(fleet, snapshot, stale)]
    idle = {name for name, claim in stale.items() if not _rolls_out(fleet, claim)}
    return [*rolled, *_recut(fleet, snapshot, idle), *failed]


def _rolls_out(fleet: Fleet, claim: Claim) -> bool:
    mig = fleet.node_pools[claim.node_pool].spec.sharing.mig
    return mig is not None and mig.rollout is not None


def _if_stale(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> Iterable[Claim]:
    pool = fleet.node_pools.get(claim.node_pool)
    allowed = pool_layouts(fleet, pool) if pool else {}
    machine = snapshot.catalog.types.get(claim.capacity_pool.instance_type)
    return [claim] if allowed and not follows(claim, machine, allowed) else ()


def _recut(fleet: Fleet, snapshot: Snapshot, stale: set[str]) -> Iterator[Decided]:
    """Re-cuts each machine to the first layout that it could have, in the pool's order."""
    first: dict[str, Recut] = {}
    idle = stale - machines_held(snapshot).keys()
    for recut in build_capacity(fleet, snapshot).recuts if idle else ():
        if recut.claim in idle and not recut.busy:
            first.setdefault(recut.claim, recut)
    subjects = ((claim_subject(name), recut) for name, recut in first.items())
    yield from each(snapshot, subjects, lambda recut: [_cut_to(snapshot, recut)])


def _cut_to(snapshot: Snapshot, recut: Recut) -> Action:
    return SaveClaim(recut.of(snapshot.claims[recut.claim], snapshot.now_s))
