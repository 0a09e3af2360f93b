"""Whether what a FleetPolicy writes as expressions can be read, and holds."""
