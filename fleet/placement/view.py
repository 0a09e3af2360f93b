"""Views: the slots of a board that suit one class of pods, kept up to date from what the board says has changed."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleet.placement.shelf import Price, Shelf, free_of_charge
from model.quantity import Resources

if TYPE_CHECKING:
    from fleet.placement.board import Board, Slot

ANYBODY: frozenset[str] = frozenset()
ANYWHERE = ""
"""The label that every slot carries, so to speak: its one domain is the whole board."""

Section = tuple[bool, frozenset[str]]
"""Whether the machine stands (it has joined the cluster), and which gangs alone may use it (none = anybody)."""


@dataclass(slots=True)
class _Entry:
    """What a view has noted of a slot; name, section and room are those it is shelved under."""

    slot: "Slot"
    name: str
    section: Section
    seen: object
    """The slot's last change that has been noted."""
    room: int = 0
    suits: bool | None = None
    """Whether the slot suits the pods; None until there is room for one, because judging is dear."""


class Rooms:
    """Rooms for pods with `requests` on the slots that `accepts` approves, by section and by the labels asked for.

    A slot is judged once: its labels, taints and pool do not change while it is on a board. A board keeps these, so
    they do not hold it: it would live on until the next collection of cycles.
    """

    def __init__(self, requests: Resources, accepts: Callable[["Slot"], bool], price: Price = free_of_charge) -> None:
        self._requests = requests
        self._accepts = accepts
        self._price = price
        self._seen = (-1, 0)
        self._entries: dict[int, _Entry] = {}
        self._shelves: dict[str, dict[Section, dict[str, Shelf]]] = {ANYWHERE: {}}
        """Label -> section -> value -> slots."""

    def shelves(self, board: "Board", label: str, section: Section) -> dict[str, Shelf]:
        """Value of a label -> the slots of a section that carry it, as the board is now."""
        self._refresh(board)
        if label not in self._shelves:
            self._shelves[label] = {}
            for entry in self._entries.values():
                self._shelve(entry, (label,), Shelf.put)
        return self._shelves[label].get(section, {})

    def owners(self, board: "Board", gang: str) -> list[frozenset[str]]:
        """For whom slots are kept that a gang may use: for anybody, and for it, alone or with others."""
        self._refresh(board)
        kept = {owners for _, owners in self._shelves[ANYWHERE] if gang in owners}
        return [ANYBODY, *(sorted(kept, key=sorted) if len(kept) > 1 else kept)]

    def _refresh(self, board: "Board") -> None:
        """Catch up with the board: the cost grows with what has changed since."""
        touched = board.touched(self._seen)
        if touched is None:
            self._entries.clear()
            self._shelves = {label: {} for label in self._shelves}
            touched = list(board.slots.values())
        for slot in dict.fromkeys(touched):  # a what-if that was undone has touched each slot twice
            self._note(board, slot)
        self._seen = board.now()

    def _note(self, board: "Board", slot: "Slot") -> None:
        entry = self._entries.get(id(slot))
        if board.slots.get(slot.name) is not slot:
            if entry is not None:
                self._shelve(entry, self._shelves, Shelf.drop)
                del self._entries[id(slot)]
            return
        if entry is not None and entry.seen is slot.changed:
            return
        section = (bool(slot.node), slot.only_for)
        if entry is None:
            entry = self._entries[id(slot)] = _Entry(slot, slot.name, section, slot.changed)
        entry.seen = slot.changed
        room = 0 if entry.suits is False else slot.room_for(self._requests)
        if (room, slot.name, section) == (entry.room, entry.name, entry.section):
            self._stir(entry)
            return
        if room and entry.suits is None:
            entry.suits = self._accepts(slot)
            room = room if entry.suits else 0
        self._shelve(entry, self._shelves, Shelf.drop)
        entry.name, entry.section, entry.room = slot.name, section, room
        self._shelve(entry, self._shelves, Shelf.put)

    def _stir(self, entry: _Entry) -> None:
        """Something else than its room has changed on a slot."""
        if entry.room:
            for label, sections in self._shelves.items():
                value = entry.slot.labels.get(label, "")
                if value or label == ANYWHERE:
                    sections[entry.section][value].stir(entry.name, entry.slot, entry.room)

    def _shelve(self, entry: _Entry, labels: Iterable[str], move: Callable[[Shelf, str, "Slot", int], None]) -> None:
        """Put an entry on its shelf under each label that its slot carries, or drop it from there."""
        if not entry.room:
            return
        for label in labels:
            value = entry.slot.labels.get(label, "")
            if value or label == ANYWHERE:
                shelves = self._shelves[label].setdefault(entry.section, {})
                if value not in shelves:
                    shelves[value] = Shelf(self._price)
                move(shelves[value], entry.name, entry.slot, entry.room)


@dataclass(frozen=True, slots=True)
class View:
    """What a board has for one class of pods."""

    board: "Board"
    rooms: Rooms

    def among(self, gang: str = "", *, standing: bool | None = None) -> "Scope":
        """All that a gang may use: only machines that stand, only others, or both (None)."""
        return Scope(self, gang, standing)


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of a view that a search may use: for one gang, by standing, inside one domain of a label."""

    view: View
    gang: str
    standing: bool | None
    label: str = ANYWHERE
    value: str = ""

    def within(self, label: str, value: str) -> "Scope":
        """Only the slots with this label value."""
        return replace(self, label=label, value=value)

    def shelves(self) -> list[Shelf]:
        """What is in scope, as of now."""
        found = (
            self.view.rooms.shelves(self.view.board, self.label, section).get(self.value)
            for section in self._sections()
        )
        return [shelf for shelf in found if shelf is not None]

    def totals(self, label: str) -> dict[str, int]:
        """Value of a label -> pods that fit on the slots with it."""
        totals: dict[str, int] = {}
        for section in self._sections():
            for value, shelf in self.view.rooms.shelves(self.view.board, label, section).items():
                totals[value] = totals.get(value, 0) + shelf.total
        return totals

    def _sections(self) -> Iterator[Section]:
        for standing in (True, False) if self.standing is None else (self.standing,):
            for owners in self.view.rooms.owners(self.view.board, self.gang):
                yield standing, owners
