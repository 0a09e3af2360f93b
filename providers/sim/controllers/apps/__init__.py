"""The controllers of `apps/v1`: Deployment, ReplicaSet, StatefulSet, DaemonSet (kube-controller-manager).

They cost nothing where no such object is: pods are looked at only once there is one.
"""
