"""What can be bought: machine shapes of every pool, what pods will find on them, prices, limits and reservations."""
