"""The law of repetition: the same content is not written to the same object again at once."""

from agent.simulation.laws.facts import Facts, Law
from agent.simulation.writes import AgentWrite

AGAIN_S = 1.0
MOST_REMEMBERED = 500


class NothingTwice(Law):
    """At most one write of the same content to the same object in a second, by one agent, of those that are done."""

    name = "nothing twice"

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._last: dict[tuple[str, str, str], tuple[float, bytes]] = {}

    def acted(self, write: AgentWrite) -> None:
        """Compare with the last one."""
        if write.refusal or write.reports:
            return
        key = (write.agent, write.verb, write.subject)
        at_s, content = self._last.get(key, (-AGAIN_S, b""))
        if write.content == content and write.at_s - at_s < AGAIN_S:
            self._facts.broken(self.name, write.subject, f"{write.verb} of the same content twice within a second")
        if len(self._last) > MOST_REMEMBERED:
            self._last = {known: it for known, it in self._last.items() if write.at_s - it[0] < AGAIN_S}
        self._last[key] = (write.at_s, write.content)
