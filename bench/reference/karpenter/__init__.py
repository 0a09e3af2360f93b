"""What Karpenter would do: the yardstick of every comparison, pod by pod and in its own order.

`buy` is its purchase, `launch` what stands between a claim and the cloud, `disrupt` a round of giving back. Karpenter's
cases and the benchmarks run it; the agent does not, and an import contract keeps it so. Rules that both share (budgets,
eligibility, drift, balance) stand with those who decide, and are imported from there.
"""
