"""A trace through the engines in virtual time."""
