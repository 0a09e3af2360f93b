"""The real agent in virtual time: brain, mirror, sync, workers and books against a simulated cluster and cloud.

Everything runs in one thread: the agent is one more controller of the simulation's kernel. It can be killed between any
two writes and started again; what was in flight then is lost, or happens without anybody hearing of it.
"""

from agent.simulation.process import Commits, Killed, Tempo
from agent.simulation.world import Manifest, Simulation
from agent.simulation.writes import Moment

__all__ = ["Commits", "Killed", "Manifest", "Moment", "Simulation", "Tempo"]
