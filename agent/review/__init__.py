"""Pull requests of the fleet repository, planned in the observed world and answered in one comment each."""
