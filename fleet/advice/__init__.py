"""What the demand says of a fleet: which layouts it should have."""
