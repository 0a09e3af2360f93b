"""A configuration of mig-parted read as what a `MigLayout` says.

mig-parted goes entry by entry over the GPUs of a machine, and the last that speaks of a GPU counts. A layout says the
same of each GPU model. What it cannot say is refused by name (`UnreadableConfig`), never left out.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import ValidationError

from model.kinds.base import API_VERSION
from model.kinds.capacity import MigLayout
from model.mig.geometry import Impossible, MigModel, feasible, mig_models
from model.mig.layouts import ALWAYS
from model.mig.parted import PartedEntry, read_mig_parted

_VENDOR = "10DE"
_Groups = list[dict[str, Any]]


class UnreadableConfig(ValueError):
    """A configuration that mig-parted accepts and no layout can say; `hint` is what to do."""

    def __init__(self, message: str, hint: str, entry: int | None = None) -> None:
        super().__init__(message)
        self.message, self.hint, self.entry = message, hint, entry


def layout_of(name: str, entries: Sequence[PartedEntry]) -> MigLayout | None:
    """The layout that a configuration says; None for what every file has. Raises `UnreadableConfig`."""
    if name in _ALWAYS:
        if tuple(entries) != _ALWAYS[name]:
            raise UnreadableConfig(f"every file has {name!r}, and this one says something else", "give it another name")
        return None
    _check(entries)
    models = {model.id: groups for model in mig_models().values() if (groups := _groups(model, entries))}
    if not models:
        raise UnreadableConfig("no GPU that Muster knows can be cut so", _known(entries))
    try:
        return MigLayout.model_validate(
            {"apiVersion": API_VERSION, "kind": "MigLayout", "metadata": {"name": name}, "spec": {"models": models}}
        )
    except ValidationError as error:
        said = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise UnreadableConfig(f"{name!r} is no layout: {said}", "rename it, or declare a MigLayout") from error


_ALWAYS = read_mig_parted({"version": "v1", "mig-configs": ALWAYS})
_GPUS_MOST = 16


def _check(entries: Sequence[PartedEntry]) -> None:
    """What no layout can say, whatever the GPU."""
    for index, entry in enumerate(entries):
        if entry.profiles is not None and not entry.profiles:
            hint = "all-enabled is in every file; a GPU that stays whole has mig-enabled: false"
            raise UnreadableConfig("GPUs with MIG on and nothing cut offer nothing", hint, index)
        if not set(entry.devices or ()) <= set(range(_GPUS_MOST)):
            raise UnreadableConfig("a machine's GPUs are 0 to 15", "name GPUs that there are", index)
        if any(":" in device for device in entry.filters):
            hint = "name the GPUs by PCI id alone"
            raise UnreadableConfig("a layout tells GPUs apart by model, not by subsystem", hint, index)
        if entry.filters and not any(map(entry.speaks_of, _ids())):
            raise UnreadableConfig(f"no GPU that Muster knows has the id {entry.filters[0]}", _known(entries), index)


def _ids() -> Iterator[str]:
    for model in mig_models().values():
        yield from _ids_of(model)


def _ids_of(model: MigModel) -> tuple[str, ...]:
    return tuple(f"{device}{_VENDOR}" for device in model.device_ids)


def _groups(model: MigModel, entries: Sequence[PartedEntry]) -> _Groups:
    """What the entries say of a model, in groups; nothing where they do not speak of it.

    An entry without a filter speaks of every GPU that can be cut so. One with a filter means what it names, and must
    be possible there; a GPU that goes by two names is the one whose profiles it names.
    """
    spoken = [(index, entry) for index, entry in enumerate(entries) if any(map(entry.speaks_of, _ids_of(model)))]
    if not spoken:
        return []
    for index, entry in spoken:
        found = feasible(model, entry.profiles or {})
        if isinstance(found, Impossible):
            if entry.filters and not _under_another_name(model, entry):
                raise UnreadableConfig(found.reason, "see the profiles of the GPU", index)
            return []
    return _folded(spoken)


def _under_another_name(model: MigModel, entry: PartedEntry) -> bool:
    return any(
        other.device_ids == model.device_ids and not isinstance(feasible(other, entry.profiles or {}), Impossible)
        for other in mig_models().values()
    )


def _folded(spoken: Sequence[tuple[int, PartedEntry]]) -> _Groups:
    """Groups in which each GPU stands once: in that of the last entry that names it."""
    taken: set[int] = set()
    groups: _Groups = []
    for index, entry in reversed(spoken):
        if entry.devices is None:
            if taken:
                message = "of an entry of all GPUs before entries of some, what is left depends on the machine"
                raise UnreadableConfig(message, "name the GPUs of this entry by their indexes", index)
            return [{"devices": "all", "profiles": dict(entry.profiles or {})}]
        mine = sorted(set(entry.devices) - taken)
        taken |= set(mine)
        if mine:
            groups.insert(0, {"devices": mine, "profiles": dict(entry.profiles or {})})
    return groups


def _known(entries: Sequence[PartedEntry]) -> str:
    if any(entry.filters for entry in entries):
        return f"known are {', '.join(sorted(_ids()))}"
    return "see docs/kinds/mig-layout.md for the GPUs that are known"
