"""One decision on given machines: which gangs start, move or leave, with shares after Volcano or KAI-Scheduler.

`decide` is the whole; the parts can be used by themselves. From the bottom up:

- `values` go in and come out; `policy` says which rules hold.
- `floor` is the machines as arrays, `hall` the pods on them and the ledger, all of it changed and undone together.
- `ledger` is what queues are asked: `fair` (quotas and fair shares), `weighted`, `deserving`, `dominance`, `together`.
- `parts` knows the tree of a gang: what stands, what comes next, what can be given up first.
- `seating` puts the next step of a gang on machines, in the `domains` its constraints allow and near its `neighbours`.
- `turns` says who is served next, `victims` who leaves first, `search` finds the fewest of those that make room.
- `state` holds a session together; `room` and `decide` are its stages.
"""
