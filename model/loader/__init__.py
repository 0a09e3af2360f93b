"""Bytes at paths -> a `Fleet`, or every problem at once with its file, line and column."""

from model.loader.checks import Check
from model.loader.clusters import CLUSTER_FILES, ClusterFiles, Clusters, cluster_digest, clusters_in
from model.loader.load import Loaded, inspect, load
from model.loader.parse import LoaderLimits
from model.loader.reading import unreadable_in
from model.loader.rewriting import NotRewritable, PoolLayouts, with_layouts, with_value
from model.problem import Code, InvalidFleet, Problem

__all__ = [
    "CLUSTER_FILES",
    "Check",
    "ClusterFiles",
    "Clusters",
    "Code",
    "InvalidFleet",
    "Loaded",
    "LoaderLimits",
    "NotRewritable",
    "PoolLayouts",
    "Problem",
    "cluster_digest",
    "clusters_in",
    "inspect",
    "load",
    "unreadable_in",
    "with_layouts",
    "with_value",
]
