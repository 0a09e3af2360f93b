"""What is answered of machines, pools, pods, buffers, prices and the use of GPUs.

The agent's page answers so, and the command line where it looks by itself: at files, and at the cluster. Nothing is
imported here: a command that asks the agent loads no more than the words that it prints.
"""

from model.plain_text import age


class NothingSo(Exception):
    """There is nothing of that name; the message says what there is."""


def price_words(now_s: float, priced_at_s: float, source: str, agent_priced_at_s: float = 0.0) -> str:
    """Returns how old the prices are, and whose; and how old the agent's own are, where a command looks by itself."""
    agent = f"; the agent's own are {age(now_s - agent_priced_at_s)} old" if agent_priced_at_s else ""
    return f"{age(now_s - priced_at_s)} old ({source}){agent}"
