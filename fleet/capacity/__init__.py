"""What to buy and what to give back: machine shapes, purchase, the life of claims, disruption (a file a method)."""
