"""The filters of the simulated kube-scheduler, one file a question; `cycle` runs them in the real order.

Written from the documented behaviour of the default profile, apart from the product's own placement, which it checks.
"""
