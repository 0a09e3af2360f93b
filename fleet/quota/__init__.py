"""The quota engine decides who may use how much of which flavor, in which order, and who has to leave for it.

It knows queues, flavors and workloads as plain values, and machines only through a `PlacementBackend`; the same engine
runs under the agent, under a replay in virtual time and under the conformance cases.
"""
