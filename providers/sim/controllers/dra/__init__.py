"""Dynamic resource allocation: claims and their life, which devices the scheduler gives them, and NVIDIA's drivers."""
