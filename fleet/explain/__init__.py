"""Questions that people ask of the fleet's machines: what could be bought, what holds a pool or a machine, and why."""
