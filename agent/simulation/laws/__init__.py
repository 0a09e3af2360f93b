"""The laws: what must hold in every history, judged by the world and never by the agent's books."""

from agent.simulation.laws.facts import Facts, Law, Violation

__all__ = ["Facts", "Law", "Violation"]
