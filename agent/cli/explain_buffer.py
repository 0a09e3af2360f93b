"""`muster explain buffer`: for how many pods of a CapacityBuffer there is room, where, and why not for all."""

import sys
from collections.abc import Iterator
from pathlib import Path

from agent.cli import exits
from agent.cli.look import answered, look_at
from agent.cli.validate import read_folder, region_for
from fleet.explain.what_if import why_no_room
from fleet.nodeclaims.capacity_buffers import BufferRoom, buffer_rooms
from fleet.placement.flavor_nodes import pools_for_pods
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from model.hints import did_you_mean, listing
from model.loader import load
from model.plain_text import plain_lines
from model.quantity import format_amount
from model.upstream import CapacityBuffer


def explain_buffer(name: str, folder: Path, region: str, kubeconfig: Path | None, context: str | None) -> int:
    """Print the explanation; the exit code."""
    return answered(lambda: _explained(name, folder, region, kubeconfig, context))


def _explained(name: str, folder: Path, region: str, kubeconfig: Path | None, context: str | None) -> int:
    files = read_folder(folder)
    fleet = load(files)
    found = [it for key, it in fleet.capacity_buffers.items() if name in {key, it.name}]
    if not found:
        known = fleet.capacity_buffers
        exits.complain(f"no CapacityBuffer {name!r}; {did_you_mean(name, known) or f'declared: {listing(known)}'}")
        return exits.ERROR
    snapshot = look_at(kubeconfig, context, region_for(region, files)).snapshot
    for buffer in found:
        sys.stdout.write(plain_lines(lines(fleet, snapshot, buffer)) + "\n")
    return exits.OK


def lines(fleet: Fleet, snapshot: Snapshot, buffer: CapacityBuffer) -> Iterator[str]:
    """The explanation, line by line."""
    requests = fleet.pod_templates[buffer.template].requests
    yield f"{buffer.key}  ({buffer.replicas(requests)} replicas of PodTemplate {buffer.spec.pod_template_ref.name})"
    yield f"  asks:     {', '.join(f'{name} {format_amount(name, each)}' for name, each in sorted(requests.items()))}"
    pools = pools_for_pods(fleet)
    yield f"  pools:    {', '.join(pool.name for pool in pools) or 'none: no node pool says `serves: [Pods]`'}"
    room = next((it for it in buffer_rooms(fleet, snapshot) if it.key == buffer.key), None)
    if room is not None:
        yield f"  ready:    {room.ready}{_machines(room, ready=True)}"
        yield f"  coming:   {room.coming}{_machines(room, ready=False)}"
        yield f"  missing:  {room.missing}{_why(fleet, snapshot, room)}"


def _machines(room: BufferRoom, *, ready: bool) -> str:
    pins = (pin for gang in room.tenants for pin in gang.pins)
    found = [f"{pin.node or pin.claim} ({pin.count})" for pin in pins if bool(pin.node) is ready]
    return f", on {', '.join(found)}" if found else ""


def _why(fleet: Fleet, snapshot: Snapshot, room: BufferRoom) -> str:
    if not room.missing:
        return ""
    refusal = why_no_room(fleet, snapshot).get(room.key)
    return f": {refusal.reason}: {refusal.message}" if refusal is not None else ": machines are bought now"
