"""MultiTaskRows: which rows of which task come when."""

from collections import Counter
from math import sqrt

import pytest
import torch
from datasets import Dataset

from hf_ftstrategies import MultiTaskRows

SIZES = {"b": 23, "a": 50, "c": 9}
TASKS = ["c", "idle", "a", "b"]
SAMPLINGS = ("proportional", "square_root", "equal")


def rows_of(sizes=SIZES):
    """Lists and a `Dataset`; each row knows where it comes from."""
    made = {name: [{"of": name, "labels": row} for row in range(size)] for name, size in sizes.items()}
    return made | {"a": Dataset.from_list(made["a"])} if "a" in made else made


def multitask(sizes=SIZES, tasks=TASKS, block_size=4, **settings):
    return MultiTaskRows(rows_of(sizes), tasks, block_size, **settings)


def drawn(rows, epoch=0):
    rows.set_epoch(epoch)
    return [(row["of"], row["labels"], row["task_ids"]) for row in rows]


def blocks(order, size=4):
    return [order[start : start + size] for start in range(0, len(order), size)]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("block_size", [1, 4, 9])
def test_each_block_is_of_one_task_and_says_which(sampling, block_size):
    rows = multitask(block_size=block_size, sampling=sampling)
    order = drawn(rows)
    assert len(order) == len(rows) == block_size * sum(size // block_size for size in SIZES.values())
    for block in blocks(order, block_size):
        assert len({name for name, _, _ in block}) == 1
    assert {(name, number) for name, _, number in order} == {("a", 2), ("b", 3), ("c", 0)}


def test_the_rows_themselves_are_untouched():
    row = multitask()[0]
    assert row in [{**given, "task_ids": TASKS.index(name)} for name, task in rows_of().items() for given in task]


@pytest.mark.parametrize("epoch", range(3))
def test_proportional_draws_no_row_twice(epoch):
    order = drawn(multitask(), epoch)
    assert len(set(order)) == len(order)
    assert Counter(name for name, _, _ in order) == {"a": 48, "b": 20, "c": 8}


def test_every_row_has_its_turn_in_some_epoch():
    rows = multitask()
    seen = {place for epoch in range(40) for place in drawn(rows, epoch)}
    assert len(seen) == sum(SIZES.values())


@pytest.mark.parametrize(
    ("sampling", "weight"), [("proportional", lambda n: n // 4), ("square_root", sqrt), ("equal", lambda n: 1)]
)
def test_numbers_of_blocks(sampling, weight):
    counts = multitask(sampling=sampling).blocks
    total, weights = 12 + 5 + 2, {name: weight(size) for name, size in SIZES.items()}
    assert sum(counts.values()) == total
    for name, count in counts.items():
        assert abs(count - total * weights[name] / sum(weights.values())) < 1


@pytest.mark.parametrize("sampling", ["square_root", "equal"])
def test_small_tasks_repeat_evenly(sampling):
    rows = multitask(sampling=sampling)
    times = Counter(drawn(rows))
    for name, size in SIZES.items():
        of_task = [times[row] for row in times if row[0] == name]
        passes = rows.blocks[name] * 4 / size
        assert sum(of_task) == rows.blocks[name] * 4
        assert set(of_task) <= {int(passes), int(passes) + 1}
    assert times[max(times, key=times.get)] > 1


def test_a_task_smaller_than_a_block_repeats_within_it():
    rows = multitask({"a": 40, "c": 2}, block_size=4, sampling="equal")
    times = Counter(row[:2] for row in drawn(rows) if row[0] == "c")
    assert times == {("c", 0): 10, ("c", 1): 10}


def test_the_order_follows_from_seed_and_epoch():
    orders = {}
    for seed in (0, 1):
        rows = multitask(seed=seed)
        for epoch in (0, 1, 2):
            orders[seed, epoch] = drawn(rows, epoch)
    assert len({str(order) for order in orders.values()}) == 6
    late = multitask(seed=1)
    assert drawn(late, 2) == orders[1, 2]
    assert drawn(late, 0) == orders[1, 0]
    tasks = [[block[0][0] for block in blocks(order)] for order in orders.values()]
    assert len({str(names) for names in tasks}) == 6
    within = [[row for name, row, _ in order if name == "a"] for order in orders.values()]
    assert len({str(rows) for rows in within}) == 6


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_that_outlive_an_epoch_hear_of_the_next(workers):
    rows = multitask({"b": 23, "c": 9})
    options = {"persistent_workers": True, "multiprocessing_context": "fork"} if workers else {}
    loader = torch.utils.data.DataLoader(rows, 4, num_workers=workers, collate_fn=list, **options)
    for epoch in range(2):
        rows.set_epoch(epoch)
        read = [(row["of"], row["labels"], row["task_ids"]) for batch in loader for row in batch]
        assert read == drawn(multitask({"b": 23, "c": 9}), epoch)


@pytest.mark.parametrize("index", [76, -77])
def test_there_are_no_more_rows(index):
    with pytest.raises(IndexError):
        multitask()[index]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sizes": {}}, "There are no rows"),
        ({"sizes": {"a": 8, "c": 0}}, r"no rows of some task: \{'a': 8, 'c': 0\}"),
        ({"tasks": ["topic", "b", "c"]}, "The model has no task 'a'. Tasks: topic, b, c"),
        ({"sizes": {"idel": 8}}, r"no task 'idel'. Did you mean 'idle'\?"),
        ({"sizes": {"a": 50, "c": 3}}, "Task 'c' with 3 rows gets no block of 4 by sampling 'proportional'.*another"),
        ({"sizes": {"a": 50, "b": 7, "c": 7}, "block_size": 50, "sampling": "equal"}, "gets no block of 50 by .*equal"),
        ({"sampling": "sqrt"}, "sampling is 'sqrt', known are proportional, square_root, equal"),
        ({"sampling": "square-root"}, r"Did you mean 'square_root'\?"),
        ({"sampling": None}, "sampling is None"),
        ({"block_size": 0}, "block_size is 0: give 1 or more"),
        ({"block_size": 4.0}, "block_size is 4.0: give a value of type int"),
        ({"seed": -1}, "seed is -1: give 0 or more"),
        ({"seed": None}, "seed is None"),
    ],
)
def test_refusals(given, message):
    with pytest.raises(ValueError, match=message):
        multitask(**given)
