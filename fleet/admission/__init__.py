"""Which gang may use which quota: the tree, the order, flavors, preemption and the cycle that ties them to machines."""
