"""Facts about instance types and their prices, dated, as package data (`ec2.json.gz`; made by `tools/ec2_facts.py`)."""
