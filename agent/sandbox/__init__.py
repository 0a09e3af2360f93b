"""A whole world on one machine: API server, EC2, controllers, a git repository, and the real agent."""
