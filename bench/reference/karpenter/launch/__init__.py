"""Karpenter's launch: which machines and offers it may name, what a failure teaches, whether a pool is well."""
