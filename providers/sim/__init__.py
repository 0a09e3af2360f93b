"""A whole fleet in one process: a cluster store with its API server, simulated controllers and a simulated cloud."""
