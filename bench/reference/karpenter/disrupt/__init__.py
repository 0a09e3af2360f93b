"""A round of Karpenter's disruption over single pods, and what becomes of its commands."""
