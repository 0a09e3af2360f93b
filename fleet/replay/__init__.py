"""Work through the same engine in virtual time: what a fleet would have done with a trace, or with recorded work."""
