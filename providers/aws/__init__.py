"""AWS: what EC2 sells and what it costs, buying and returning machines, and the interruption queue.

Importing `catalog` and what it needs never imports boto3: it serves `muster plan` on a laptop.
"""
