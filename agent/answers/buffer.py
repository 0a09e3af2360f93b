"""Of a CapacityBuffer: for how many of its pods there is room, where, and why not for all."""

from collections.abc import Iterator
from itertools import chain

from agent.answers import NothingSo
from fleet.explain.what_if import why_no_room
from fleet.nodeclaims.capacity_buffers import BufferRoom, buffer_rooms
from fleet.placement.flavor_nodes import pools_for_pods
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from model.hints import did_you_mean, listing
from model.quantity import format_amount
from model.upstream.capacity_buffer import CapacityBuffer


def buffer_lines(fleet: Fleet, snapshot: Snapshot, name: str) -> Iterator[str]:
    """Returns all there is to say of the buffers of the name, or `namespace/name`. Errors: NothingSo."""
    return chain.from_iterable(lines(fleet, snapshot, buffer) for buffer in buffers_called(fleet, name))


def buffers_called(fleet: Fleet, name: str) -> list[CapacityBuffer]:
    """Returns the declared buffers of the name. Errors: NothingSo."""
    found = [it for key, it in fleet.capacity_buffers.items() if name in {key, it.name}]
    if not found:
        known = fleet.capacity_buffers
        raise NothingSo(f"no CapacityBuffer {name!r}; {did_you_mean(name, known) or f'declared: {listing(known)}'}")
    return found


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
