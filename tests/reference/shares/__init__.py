"""Shares: what each queue is due, as arithmetic on plain amounts. No state, no machines.

Amounts are `{resource: number}`. A resource that a limit does not name is unlimited there, one that a demand does not
name is not asked for; every function says which of the two its arguments are.
"""
