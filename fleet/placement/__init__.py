"""Where pods go: slots, fitting, topology domains and packing."""
