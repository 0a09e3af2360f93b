"""Generators of what the repository carries: schemas, tables of the documentation, definitions, facts. Not shipped."""
