"""What the fleet costs and who pays: prices an hour, split to teams, with an exact identity."""
