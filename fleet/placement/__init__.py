"""This room decides where the pods of a gang go: on standing machines, on ones cut anew, and on ones to buy for it.

It knows quotas and offerings, and nothing of queues or of the life of gangs. Reading order: `cluster_state` and
`free_capacity` (what is free), `inventory` (what a snapshot offers), `plan` (what is asked and answered), `place` (the
search), `buyable_capacity` and `opportunity_cost` (what it prefers); `topology_placer` and `topology` for pods that
ask for racks and slices.
"""
