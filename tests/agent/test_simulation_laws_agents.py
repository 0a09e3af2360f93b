"""Two agents and one lease in virtual time, and an agent whose clock departs from the world's."""

import pytest

from agent.simulation import Simulation
from agent.simulation.checker import Checker
from agent.simulation.drawing import sold
from agent.simulation.laws.facts import Facts
from agent.simulation.seat import AgentSeat, Supervisor
from tests.agent.scenes import gpu_job, simple


class TwoAgents:
    def __init__(self) -> None:
        checker, self.supervisor = Checker(), Supervisor()
        self.sim = Simulation(catalog=sold(), more=[self.supervisor, checker], agents=2)
        self.supervisor.seats = self.sim.seats
        self.facts: Facts = checker.watch(self.sim)
        self.sim.push(simple())
        self.sim.advance(20)

    @property
    def leaders(self) -> list[AgentSeat]:
        return [seat for seat in self.sim.seats if seat.process is not None and seat.leading()]


def test_one_of_two_agents_leads() -> None:
    world = TwoAgents()
    assert len(world.leaders) == 1
    world.sim.submit(gpu_job("a", pods=2))
    assert world.sim.advance_until(lambda: world.sim.running("a"), 600)
    assert len(world.sim.machines()) == 2


@pytest.mark.parametrize("in_flight", [False, True])
def test_a_leader_that_wakes_after_another_was_elected_does_no_harm(in_flight: bool) -> None:
    """It goes on as if nothing had been, at times with requests still on the wire; then it ends and stands again."""
    world = TwoAgents()
    world.sim.submit(gpu_job("a", pods=2))
    world.sim.advance(5)
    (leader,) = world.leaders
    leader.suspend(world.sim.now_s + 60, in_flight=in_flight)
    world.sim.advance(40)
    (successor,) = world.leaders
    assert successor is not leader
    assert world.sim.advance_until(lambda: world.sim.running("a"), 600)
    world.sim.advance(300)
    assert world.leaders == [successor]
    assert leader.runs, "as a candidate"
    assert len(world.sim.cloud.ledger()) == 2
    assert world.facts.violations == []


def test_a_leader_that_wakes_too_late_leaves_the_books_as_they_are() -> None:
    """Found by `--profile two-agents --seed 20454`: it billed machines that had gone, and its books stayed."""
    world = TwoAgents()
    job = gpu_job("a")
    world.sim.submit(job)
    assert world.sim.advance_until(lambda: world.sim.running("a"), 600)
    (leader,) = world.leaders
    leader.suspend(world.sim.now_s + 400, in_flight=False)
    world.sim.delete(job)
    assert world.sim.advance_until(lambda: not world.sim.machines(), 390)
    books: list[str] = []
    world.sim.on_write(lambda write: books.append(write.agent) if "muster-books" in write.subject else None)
    world.sim.advance(600)
    assert leader.name not in books


def test_a_killed_leader_is_followed_by_the_other() -> None:
    world = TwoAgents()
    (leader,) = world.leaders
    world.sim.crash_at(world.sim.writes + 6)
    world.sim.submit(gpu_job("a"))
    assert world.sim.advance_until(lambda: world.sim.running("a"), 900)
    assert world.leaders != [leader]
    assert world.facts.violations == []


def test_the_clock_of_an_agent_departs_from_the_worlds() -> None:
    world = TwoAgents()
    (leader,) = world.leaders
    clock, now_s = leader.agent_clock, world.sim.now_s
    clock.offset_s = -90.0
    assert clock.now() == now_s - 90
    clock.freeze()
    world.sim.advance(2)
    assert clock.now() == now_s - 90
    assert clock.monotonic() == now_s + 2
    clock.thaw()
    assert clock.now() == now_s - 88
