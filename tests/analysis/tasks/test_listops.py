"""ListOps: values against a recursive evaluator, the grammar's limits and probabilities, the task."""

from __future__ import annotations

import random
import statistics

import pytest

from stability.analysis.tasks import listops_expression, make_task, solve_listops
from stability.analysis.tasks.listops import LISTOPS_TOKENS
from stability.errors import ConfigurationError


def tree(tokens):
    """Nested lists, by recursive descent."""
    token = tokens.pop(0)
    if token.isdigit():
        return int(token)
    items = [token[1:]]
    while tokens[0] != "]":
        items.append(tree(tokens))
    tokens.pop(0)
    return items


def value(node):
    if isinstance(node, int):
        return node
    operator, *arguments = node
    values = [value(a) for a in arguments]
    rules = {"MIN": min, "MAX": max, "MED": lambda v: int(statistics.median(v)), "SM": lambda v: sum(v) % 10}
    return rules[operator](values)


def depth(node):
    return 1 if isinstance(node, int) else 1 + max(depth(a) for a in node[1:])


def nodes(node):
    yield node
    if not isinstance(node, int):
        for child in node[1:]:
            yield from nodes(child)


def test_values_and_limits():
    for seed in range(30):
        tokens = listops_expression(random.Random(seed), max_depth=6, max_args=5)
        parsed = tree(list(tokens))
        assert solve_listops(tokens) == value(parsed)
        assert depth(parsed) <= 6
        assert all(isinstance(n, int) or 2 <= len(n) - 1 <= 5 for n in nodes(parsed))


@pytest.mark.parametrize(("text", "expected"), [
    ("7", 7), ("[MAX 4 3 [MIN 2 3 ] 1 0 [MED 1 5 8 9 2 ] ]", 5), ("[MED 1 2 ]", 1), ("[MED 9 0 4 8 ]", 6),
    ("[SM 9 9 9 ]", 7), ("[MIN [SM 5 5 ] 3 ]", 0),
])  # fmt: skip
def test_known_values(text, expected):
    assert solve_listops(text.split()) == expected


@pytest.mark.parametrize("text", ["", "]", "[MAX ]", "[MAX 1 2", "1 2", "[MAX 1 ] ]", "[TOP 1 2 ]", "[MIN 12 3 ]", "x"])
def test_malformed_expressions(text):
    with pytest.raises(ConfigurationError):
        solve_listops(text.split())


def test_the_task():
    task = make_task("listops", max_length=30, min_length=5, train=200, test=100, seed=3)
    assert (task.input_size, task.output_size, task.steps, task.kind) == (15, 10, 30, "classes")
    seen = set()
    for part, (x, y) in (("train", task.train), ("test", task.test)):
        assert x.shape[1:] == (30, 15)
        lengths = x.sum((1, 2)).int()
        assert lengths.min() >= 5
        assert lengths.max() <= 30
        for row, label, length in zip(x, y, lengths.tolist()):
            assert (row[: 30 - length] == 0).all()  # padding in front
            assert (row[30 - length :].sum(1) == 1).all()
            tokens = [LISTOPS_TOKENS[k] for k in row[30 - length :].argmax(1)]
            assert value(tree(list(tokens))) == label
            if part == "train":
                seen.add(tuple(tokens))
            else:
                assert tuple(tokens) not in seen
    assert task.chance == max(task.test[1].bincount()) / 100
