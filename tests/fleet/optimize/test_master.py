"""Patterns are known once, and only those are added that are worth more than they cost."""

import numpy as np

from fleet.optimize.master import PatternMix, PatternPool, PodPrices, PricingBudget

KINDS = np.array([0, 0, 1, 0])
PODS = np.array([[2, 0], [1, 1], [0, 3], [2, 0]])


def test_a_pattern_is_known_once() -> None:
    pool = PatternPool(2)
    pool.add_all(KINDS, PODS)
    assert len(pool) == 3
    assert not pool.add(1, PODS[2])
    assert pool.add(0, PODS[2])  # the same pods on another kind


def test_amounts_and_mixes_say_the_same() -> None:
    pool = PatternPool(2)
    pool.add_all(KINDS, PODS)
    mix = pool.mix(np.array([2.0, 0.4, 1.0]))
    assert (mix.kinds.tolist(), mix.pods.tolist(), mix.machines.tolist()) == ([0, 1], [[2, 0], [0, 3]], [2, 1])
    assert mix.placed.tolist() == [4, 3]
    assert pool.amounts(mix).tolist() == [2.0, 0.0, 1.0]
    assert pool.bought(np.array([0.0, 0.4, 1.0])).machines.tolist() == [1, 1]
    assert pool.amounts(PatternMix(KINDS[:0], PODS[:0], KINDS[:0])).tolist() == [0.0, 0.0, 0.0]


def test_patterns_with_negative_reduced_cost_are_added_best_first() -> None:
    prices = PodPrices(np.array([1.0, 0.5]), np.array([1.2, 1.5]))  # gains: 0.8, 0.3, 0.0
    pool = PatternPool(2)
    assert pool.add_improving(prices, KINDS, PODS, 1)
    assert [it.tolist() for it in pool.patterns(np.arange(len(pool)))] == [[0], [[2, 0]]]
    assert pool.add_improving(prices, KINDS, PODS, 9)
    assert len(pool) == 2
    assert not pool.add_improving(prices, KINDS, PODS, 9)
    assert pool.add_improving(prices, KINDS, PODS, 9, slack_usd_h=0.1)


def test_a_budget_ends_by_rounds_and_when_nothing_moves() -> None:
    budget = PricingBudget(rounds=100, iterations=1, enough_usd_h=0.5)
    assert budget.left([10.0] * 20)
    assert not budget.left([10.0] * 21)
    assert budget.left([10.0, *[9.0] * 20])
    budget.rounds = 100
    assert not budget.left([10.0])
    spent = PricingBudget(rounds=100, iterations=1, work=8)
    spent.filled(PODS)
    assert not spent.left([10.0])
