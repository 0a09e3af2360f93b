"""What is said of a pull request: one comment, in it a section for each cluster that the change would reach."""
