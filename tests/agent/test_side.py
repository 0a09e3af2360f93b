"""The side channel: nobody waits, nothing raises, and what is dropped is told."""

import threading

from agent.side import SideChannel


def test_what_is_sent_is_done_and_a_failure_harms_nobody() -> None:
    drops: list[int] = []
    done = threading.Event()
    side = SideChannel(lambda: drops.append(1))
    side.send(lambda: 1 / 0)
    side.send(lambda word: done.set() if word == "go" else None, "go")
    assert done.wait(10)
    side.close()
    assert drops == []


def test_beyond_the_room_things_are_dropped_and_told() -> None:
    drops: list[int] = []
    sent: list[str] = []
    gate = threading.Event()
    side = SideChannel(lambda: drops.append(1), most=1)

    def slow() -> None:
        gate.wait(10)
        sent.append("slow")

    side.send(slow)
    side.send(sent.append, "too much")
    side.send(sent.append, "too much")
    gate.set()
    side.close()
    assert (sent, len(drops)) == (["slow"], 2)
