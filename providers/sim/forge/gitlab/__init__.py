"""GitLab, pretended."""
