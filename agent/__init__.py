"""The process: it orders the work of the floors below and holds no rules of its own."""
