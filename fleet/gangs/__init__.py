"""The life of a gang: opened, held, started, losing machines, evicted, finished."""
