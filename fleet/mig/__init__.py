"""How GPUs are cut: layouts as capacity, re-cutting of idle nodes and the proof that a cut has happened."""
