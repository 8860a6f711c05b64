import pytest
from datasets import Dataset, DatasetDict

from hf_ftstrategies.data.info import DatasetInfo
from hf_ftstrategies.data.splits import make_splits


def rows(count, begin=0):
    return Dataset.from_dict(
        {"text": [f"text {begin + i}" for i in range(count)], "label": [i % 4 for i in range(count)]}
    )


def info(unlabelled=()):
    return DatasetInfo(
        name="d",
        task="single_text",
        text_columns=("text",),
        label_column="label",
        label_names=("a", "b", "c", "d"),
        metrics=("accuracy",),
        metric="accuracy",
        source="d",
        licence="",
        rows={},
        unlabelled=unlabelled,
    )


def sizes(splits):
    return {name: len(part) for name, part in splits.items()}


def texts(part):
    return set(part["text"])


def test_a_single_split_is_cut_in_three():
    splits, notes = make_splits(DatasetDict(train=rows(100)), info())
    assert sizes(splits) == {"train": 70, "validation": 10, "test": 20}
    assert len(notes) == 2
    everything = [text for part in splits.values() for text in part["text"]]
    assert len(set(everything)) == 100


def test_validation_is_cut_from_train_and_never_from_test():
    test = rows(40, begin=1000)
    splits, notes = make_splits(DatasetDict(train=rows(100), test=test), info(), validation_rows=20)
    assert sizes(splits) == {"train": 80, "validation": 20, "test": 40}
    assert texts(splits["test"]) == texts(test)
    assert not texts(splits["validation"]) & texts(splits["train"])
    assert notes == ["validation: 20 rows cut from train, stratified, seed 0"]


@pytest.mark.parametrize("hidden", [False, True])
def test_without_labelled_test_validation_is_the_only_evaluation(hidden):
    splits = {"train": rows(100), "validation": rows(40, 1000)} | ({"test": rows(9)} if hidden else {})
    found, notes = make_splits(DatasetDict(splits), info(("test",) if hidden else ()))
    assert sizes(found) == {"train": 100, "validation": 40}
    assert notes == []
    with pytest.raises(ValueError, match="no labelled test"):
        make_splits(DatasetDict(splits), info(("test",) if hidden else ()), test_rows=5)


def test_subsets_are_stratified_nested_and_apart_from_the_rest():
    dataset = DatasetDict(train=rows(200), test=rows(80, 1000))
    small, notes = make_splits(dataset, info(), train_rows=40, validation_rows=20, test_rows=16)
    large, _ = make_splits(dataset, info(), train_rows=80, validation_rows=20, test_rows=16)
    assert sizes(small) == {"train": 40, "validation": 20, "test": 16}
    assert texts(small["validation"]) == texts(large["validation"])
    assert texts(small["train"]) < texts(large["train"])
    assert all(small["test"]["label"].count(label) == 4 for label in range(4))
    assert len(notes) == 3


def test_more_rows_than_there_are():
    dataset = DatasetDict(train=rows(100), validation=rows(40, 1000))
    with pytest.raises(ValueError, match="train_rows is 101"):
        make_splits(dataset, info(), train_rows=101)
    with pytest.raises(ValueError, match="more than the 100"):
        make_splits(DatasetDict(train=rows(100)), info(), train_rows=90)
    with pytest.raises(ValueError, match="no train split"):
        make_splits(DatasetDict(test=rows(10)), info())


def test_zhangs_scheme():
    dataset = DatasetDict(train=rows(2000), validation=rows(40, 5000))
    splits, notes = make_splits(dataset, info(), train_rows=1000, scheme="zhang")
    assert sizes(splits) == {"train": 1000, "validation": 20, "test": 20}
    assert texts(splits["validation"]) | texts(splits["test"]) == texts(dataset["validation"])
    assert len(notes) == 2
    with pytest.raises(ValueError, match="this data set has none"):
        make_splits(DatasetDict(train=rows(100)), info(), scheme="zhang")
