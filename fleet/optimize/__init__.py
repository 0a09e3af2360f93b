"""One core of optimisation, under the two questions asked of it: what to buy, and what to give back."""
