"""Sampling: disjoint, stratified, nested, reproducible, and to the row as published."""

from collections import Counter

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ftstrategies.data.sampling import few_shot, stratified_split, zhang_halves, zhang_subset


def rows(labels, texts=None):
    texts = texts or [f"text {index}" for index in range(len(labels))]
    return Dataset.from_dict({"text": texts, "label": labels, "row": list(range(len(labels)))})


@settings(max_examples=30, deadline=None)
@given(
    labels=st.lists(st.integers(0, 3), min_size=30, max_size=80),
    copies=st.lists(st.integers(0, 29), max_size=10),
    seed=st.integers(0, 5),
)
def test_split_is_disjoint_and_keeps_equal_texts_together(labels, copies, seed):
    texts = [f"text {index}" for index in range(len(labels))] + [f"text {index}" for index in copies]
    dataset = rows(labels + [labels[index] for index in copies], texts)
    parts = stratified_split(dataset, {"train": 12, "test": 7}, seed)
    rows_of = {name: set(part["row"]) for name, part in parts.items()}
    texts_of = {name: set(part["text"]) for name, part in parts.items()}
    assert [len(part) for part in parts.values()] == [12, 7]
    assert not rows_of["train"] & rows_of["test"]
    assert not texts_of["train"] & texts_of["test"]


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(20, 60), min_size=2, max_size=4), seed=st.integers(0, 5))
def test_every_part_has_the_classes_in_proportion(sizes, seed):
    dataset = rows([label for label, size in enumerate(sizes) for _ in range(size)])
    parts = stratified_split(dataset, {"a": 0.5, "b": 10, "c": 0.2}, seed)
    for part in parts.values():
        counts = Counter(part["label"])
        for label, size in enumerate(sizes):
            assert abs(counts[label] - size * len(part) / len(dataset)) <= 2


def test_shares_that_sum_to_one_use_every_row():
    parts = stratified_split(rows([0, 1] * 17), {"train": 0.8, "validation": 0.1, "test": 0.1}, seed=3)
    assert sorted(row for part in parts.values() for row in part["row"]) == list(range(34))
    assert [len(part) for part in parts.values()] == [27, 4, 3]


def test_seed_decides():
    dataset = rows([0, 1] * 50)
    draw = {
        seed: [part["row"][:] for part in stratified_split(dataset, {"a": 30, "b": 30}, seed).values()]
        for seed in (0, 1)
    }
    again = [part["row"][:] for part in stratified_split(dataset, {"a": 30, "b": 30}, 0).values()]
    assert draw[0] == again
    assert draw[0] != draw[1]


def test_groups_by_any_column_and_by_pairs():
    dataset = Dataset.from_dict(
        {"sentence1": ["a", "a", "b", "c"] * 5, "sentence2": ["x", "x", "y", "z"] * 5, "label": [0, 1, 0, 1] * 5}
    )
    parts = stratified_split(dataset, {"train": 10, "test": 5}, seed=0)
    assert not set(parts["train"]["sentence1"]) & set(parts["test"]["sentence1"])
    with_source = rows([0, 1] * 10).add_column("source", [index // 2 for index in range(20)])
    parts = stratified_split(with_source, {"train": 12, "test": 8}, seed=0, group_by="source")
    assert not set(parts["train"]["source"]) & set(parts["test"]["source"])


def test_numbers_are_stratified_by_decile_and_label_lists_by_list():
    scores = np.linspace(0, 5, 200).tolist()
    part = stratified_split(rows(scores), {"a": 40, "b": 100}, seed=0)["a"]
    assert np.histogram(part["label"], bins=10, range=(0, 5))[0].tolist() == pytest.approx([4] * 10, abs=1)
    lists = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]] * 20
    part = stratified_split(rows(lists), {"a": 30}, seed=0)["a"]
    assert sorted(Counter(map(tuple, part["label"])).values()) == [10, 10, 10]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 9), small=st.integers(1, 60), more=st.integers(0, 60))
def test_few_shot_sets_are_nested(seed, small, more):
    dataset = rows([index % 3 for index in range(120)])
    inner = few_shot(dataset, count=small, seed=seed)
    outer = few_shot(dataset, count=small + more, seed=seed)
    assert outer["row"][:small] == inner["row"][:]
    assert set(few_shot(dataset, per_class=small // 2 + 1, seed=seed)["row"]) <= set(
        few_shot(dataset, per_class=small // 2 + 5, seed=seed)["row"]
    )


def test_few_shot_is_stratified():
    dataset = rows([0] * 750 + [1] * 250)
    assert Counter(few_shot(dataset, fraction=0.04, seed=0)["label"]) == {0: 30, 1: 10}
    assert Counter(few_shot(dataset, per_class=7, seed=0)["label"]) == {0: 7, 1: 7}
    assert len(few_shot(dataset, fraction=0.0001, seed=0)) == 1


def test_zhang_halves_shuffle_each_class_with_seed_one():
    labels = [2, 0, 0, 1, 2, 0, 1, 2, 0, 2, 2]
    halves = zhang_halves(rows(labels))
    validation, test = [], []
    for label in (2, 0, 1):  # in the order in which they appear
        members = np.array([row for row, one in enumerate(labels) if one == label])
        np.random.RandomState(1).shuffle(members)
        validation += members[: len(members) // 2].tolist()
        test += members[len(members) // 2 :].tolist()
    assert halves["validation"]["row"][:] == validation
    assert halves["test"]["row"][:] == test


def test_zhang_halves_of_scores_are_per_distinct_score():
    halves = zhang_halves(rows([1.5, 1.5, 2.0, 2.0, 2.0, 4.2]))
    assert sorted(halves["validation"]["label"]) == [1.5, 2.0]
    assert sorted(halves["test"]["label"]) == [1.5, 2.0, 2.0, 4.2]


def test_zhang_subset_draws_the_same_number_of_each_class_with_seed_zero():
    labels = [1, 0, 1, 1, 0, 2, 2, 0, 1, 2, 0, 2]
    drawn = {last: zhang_subset(rows(labels), 7, last=last) for last in (False, True)}
    state, expected = np.random.RandomState(0), {False: [], True: []}
    for label in (1, 0, 2):
        members = np.array([row for row, one in enumerate(labels) if one == label])
        state.shuffle(members)
        expected[False] += members[:2].tolist()
        expected[True] += members[-2:].tolist()
    assert {last: part["row"][:] for last, part in drawn.items()} == expected


def test_zhang_subset_of_scores_is_a_torch_permutation():
    torch.manual_seed(0)
    expected = torch.randperm(20)[:5].tolist()
    assert zhang_subset(rows([index / 7 for index in range(20)]), 5)["row"][:] == expected


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda data: stratified_split(data, {}, 0), "names no part"),
        (lambda data: stratified_split(data, {"train": 0}, 0), "positive int or a float below 1, got 0"),
        (lambda data: stratified_split(data, {"train": 1.0}, 0), "got 1.0"),
        (lambda data: stratified_split(data, {"train": 8, "test": 3}, 0), "more than the 10 rows"),
        (lambda data: stratified_split(data, {"train": 0.9, "test": 0.2}, 0), "more than the 10 rows"),
        (lambda data: stratified_split(data, {"train": 0.9, "test": 0.01}, 0), "leave one empty"),
        (lambda data: stratified_split(data, {"a": 5}, 0, "labels"), "no column 'labels'. Did you mean 'label'"),
        (lambda data: few_shot(data, seed=0), "exactly one of"),
        (lambda data: few_shot(data, count=2, fraction=0.1, seed=0), "exactly one of"),
        (lambda data: few_shot(data, fraction=1.5, seed=0), "at most 1, got 1.5"),
        (lambda data: few_shot(data, count=11, seed=0), "count must be 1 to 10"),
        (lambda data: few_shot(data, per_class=6, seed=0), "class 0 has 5 rows"),
        (lambda data: zhang_subset(data, 1), "less than one row for each of 2 classes"),
        (lambda data: zhang_subset(rows([0.5, 1.5]), 1, last=True), "draws no validation set"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call(rows([0, 1] * 5))
