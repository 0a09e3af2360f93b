"""Manifests of Karpenter, Kueue, Volcano and of capacity buffers in the fleet repository, read as they are.

Most fleets hold none, and the models of all take longer to import than a small fleet to read: each file is imported by
who needs it, and `model.upstream.manifests`, which knows all, where a fleet holds one.
"""
