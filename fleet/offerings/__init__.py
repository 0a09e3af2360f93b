"""What can be bought: the offerings of every pool, what pods will find on them, prices, limits and reservations."""
