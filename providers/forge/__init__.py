"""Forges: pull requests, comments and commit statuses of GitHub, GitLab, Gitea and Forgejo behind one port."""
