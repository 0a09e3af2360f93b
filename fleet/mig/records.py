"""What is remembered of a pool's layouts: cuts that failed, whether that stops it, and what it goes back to.

Machines that failed are soon gone, and so is the declaration of a layout that was good: both are kept in the status of
the FleetSync. All else follows from the claims.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from fleet.mig.layouts import pool_layouts
from fleet.reasons import Reason
from fleet.snapshot import Claim, ClaimState, CutFailure, LayoutRecord, Snapshot
from fleet.snapshot.lookups import claims_by_pool
from model import labels
from model.fleet import Fleet
from model.kinds import MigLayout, NodePool
from model.kinds.base import API_VERSION
from model.labels import GPU_RESOURCE

MOST_FAILURES: Final = 3
"""After so many cuts of a pool that failed nothing is bought there."""
REMEMBERED_S: Final = 6 * 3600.0
_FAILED: Final = frozenset({Reason.LAYOUT_FAILED, Reason.LAYOUT_DRIFT})
_MOST_WORDS: Final = 300

LayoutRecords = Mapping[str, LayoutRecord]
"""By pool."""


def layout_records(before: LayoutRecords, fleet: Fleet, snapshot: Snapshot) -> LayoutRecords:
    """Returns what is to be remembered from now on; `before` itself where nothing is new."""
    cutting = {name: pool for name, pool in fleet.node_pools.items() if pool.spec.sharing.mig is not None}
    found = {name: _record(before.get(name), fleet, snapshot, cutting[name]) for name in sorted(cutting)}
    return before if found == dict(before) else found


def _record(before: LayoutRecord | None, fleet: Fleet, snapshot: Snapshot, pool: NodePool) -> LayoutRecord:
    now = _begun(before, fleet, snapshot, pool)
    claims = claims_by_pool(snapshot).get(pool.name, ())
    known = {it.claim for it in now.failures}
    failures = sorted([*now.failures, *(it for it in _failures(snapshot, claims, now) if it.claim not in known)])
    recent = tuple(it for it in failures if it.at_s > snapshot.now_s - REMEMBERED_S)[-MOST_FAILURES * 2 :]
    proven = now.proven or any(_proves(claim, now) for claim in claims)
    rolled_back = now.rolled_back or _ends_rollout(now, pool, len(recent))
    return replace(now, failures=recent, proven=proven, rolled_back=rolled_back)


def _ends_rollout(record: LayoutRecord, pool: NodePool, failures: int) -> bool:
    """Returns whether so many failed cuts take a roll-out back; never where there is nothing to go back to."""
    mig = pool.spec.sharing.mig
    rollout = mig.rollout if mig is not None else None
    return rollout is not None and bool(record.former) and failures >= rollout.failures


def _last_good(record: LayoutRecord | None) -> str:
    """Returns the last layout by which cuts of a pool have succeeded; empty where none is known."""
    if record is None:
        return ""
    return record.content if record.proven else record.former


def _begun(before: LayoutRecord | None, fleet: Fleet, snapshot: Snapshot, pool: NodePool) -> LayoutRecord:
    """Returns the record of what the pool declares: another declaration begins anew, and the one before is former."""
    layouts = pool_layouts(fleet, pool)
    declared, content = tuple(layouts), layout_text(next(iter(layouts.values())))
    if before is not None and (before.declared == declared or (before.rolled_back and before.former == content)):
        return before
    former = _last_good(before)
    return LayoutRecord(pool.name, declared, content, snapshot.now_s, former=former if former != content else "")


def _failures(snapshot: Snapshot, claims: Iterable[Claim], record: LayoutRecord) -> Iterator[CutFailure]:
    for claim in claims:
        why = claim.disruption
        if why is not None and why.reason in _FAILED and why.at_s >= record.since_s and claim.layout in record.declared:
            yield CutFailure(why.at_s, claim.name, f"{why.message[:_MOST_WORDS]}{_hint(snapshot, claim)}")


def _hint(snapshot: Snapshot, claim: Claim) -> str:
    """Returns what a machine tells of why it cannot be cut, as far as it does."""
    node = snapshot.nodes.get(claim.node)
    if node is None:
        return ""
    strategy, state = node.labels.get(labels.MIG_STRATEGY, ""), node.labels.get(labels.MIG_CONFIG_STATE, "")
    unseen = state == "success" and node.allocatable.get(GPU_RESOURCE, 0) and not strategy
    if strategy not in {"", "mixed"} or unseen:
        return f"; its device plugin has the strategy {strategy or 'none'}: set mig.strategy=mixed in the ClusterPolicy"
    return ""


def _proves(claim: Claim, record: LayoutRecord) -> bool:
    ready = claim.state is ClaimState.READY and claim.disruption is None and claim.recut_at_s <= claim.ready_at_s
    return ready and claim.layout in record.declared and claim.ready_at_s >= record.since_s


def layout_text(layout: MigLayout) -> str:
    """Returns a layout as text from which `layout_of` makes it again."""
    told = {"name": layout.name, "spec": layout.spec.model_dump(mode="json", by_alias=True)}
    return json.dumps(told, sort_keys=True, separators=(",", ":"))


def layout_of(text: str) -> MigLayout | None:
    """Returns the layout of a text; None for one that tells no layout."""
    try:
        told = json.loads(text)
        found = {"apiVersion": API_VERSION, "kind": "MigLayout", "metadata": {"name": told["name"]}}
        return MigLayout.model_validate({**found, "spec": told["spec"]})
    except (ValueError, KeyError, TypeError):
        return None


def _layout_to_go_back_to(fleet: Fleet, pool: NodePool, record: LayoutRecord) -> MigLayout | None:
    """Returns the last good layout while a pool declares what has failed; None where nothing was rolled back."""
    layout = layout_of(record.former) if record.rolled_back else None
    return layout if layout is not None and tuple(pool_layouts(fleet, pool)) == record.declared else None


def with_former_layouts(fleet: Fleet, records: LayoutRecords) -> Fleet:
    """Returns the fleet with pools whose roll-out has failed as they were: with the last layout that was good."""
    former: dict[str, MigLayout] = {}
    pools = dict(fleet.node_pools)
    for name, record in sorted(records.items()):
        pool = pools.get(name)
        if pool is None or pool.spec.sharing.mig is None:
            continue
        if (layout := _layout_to_go_back_to(fleet, pool, record)) is not None:
            former[name] = layout
            mig = pool.spec.sharing.mig.model_copy(update={"layouts": (layout.name,)})
            sharing = pool.spec.sharing.model_copy(update={"mig": mig})
            pools[name] = pool.model_copy(update={"spec": pool.spec.model_copy(update={"sharing": sharing})})
    return replace(fleet, node_pools=pools, former_layouts=former) if former else fleet


def stopped_words(record: LayoutRecord | None) -> str:
    """Returns why nothing is bought for a pool whose cuts fail, and what helps; empty where it is."""
    if record is None or record.rolled_back:
        return ""
    recent = record.failures
    if len(recent) < MOST_FAILURES:
        return ""
    return (
        f"{len(recent)} machines of node pool {record.pool} could not be cut, the last one {recent[-1].claim}: "
        f"{recent[-1].message}; nothing is bought there until another layout is declared, or for 6 hours. Look at "
        "mig-manager's log, migManager.config.name and mig.strategy of the ClusterPolicy"
    )


def rolled_back_words(record: LayoutRecord) -> str:
    """Returns that the roll-out of a layout was undone, and what goes on with it."""
    former = layout_of(record.former)
    last = f": {record.failures[-1].claim}: {record.failures[-1].message}" if record.failures else ""
    return (
        f"node pool {record.pool} goes back to layout {former.name if former else 'of before'}, as machines could not "
        f"be cut otherwise{last}; declare another layout to go on"
    )
