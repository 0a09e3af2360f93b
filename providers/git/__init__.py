"""Desired state from git: poll a remote, prove who signed it, hand out the files of a commit as immutable values.

Importing this package costs nothing; the modules below it that need libgit2 load it themselves.
"""
