"""Data sets are loaded from the Hub over HTTP: registered ones by their columns and revisions, and any other."""

import io

import pytest
from datasets import ClassLabel, Dataset, Features, Value

from tests.hub import client


def put(hub, repo, branch="main", **splits):
    """A data set on the hub, a Parquet file for each split."""
    name = f"datasets/{repo}"
    if name not in hub.store.repositories:
        hub.store.create(name, private=False)
    if branch != "main":
        hub.store.name_commit(name, "branches", branch, "main")
    files = {}
    for path, rows in splits.items():
        buffer = io.BytesIO()
        rows.to_parquet(buffer)
        files[f"{path}.parquet"] = hub.store.add(buffer.getvalue())
    hub.store.commit(name, branch, "data", files)


def rows(label="label", names=("neg", "pos"), text="text", count=6):
    features = Features({text: Value("string"), label: ClassLabel(names=list(names))})
    made = {text: [f"text {i}" for i in range(count)], label: [i % len(names) for i in range(count)]}
    return Dataset.from_dict(made, features=features)


def test_a_registered_set(hub, run):
    put(hub, "stanfordnlp/imdb", train=rows(), test=rows(count=4))
    found, labels, hub_id = run(client.load_dataset, "imdb")
    assert {split: len(part) for split, part in found.items()} == {"train": 6, "test": 4}
    assert found["train"][1] == {"text": "text 1", "label": 1}
    assert labels == ["neg", "pos"]
    assert hub_id == "stanfordnlp/imdb"


def test_a_registered_set_with_a_revision_and_another_label_column(hub, run):
    names = ("ABBR", "ENTY", "DESC", "HUM", "LOC", "NUM")
    branch = "refs/convert/parquet"
    put(hub, "CogComp/trec", branch, **{"default/train/0000": rows("coarse_label", names, count=12)})
    found, labels, hub_id = run(client.load_dataset, "trec")
    assert found["train"][3]["label"] == 3
    assert labels == list(names)
    assert hub_id == "CogComp/trec"
    assert any("refs%2Fconvert%2Fparquet" in path for _, _, path in hub.requests)


def test_pairs_without_an_agreed_label_are_dropped_and_counted(hub, run):
    made = {"premise": ["a", "b", "c", "d"], "hypothesis": ["e", "f", "g", "h"], "label": [0, -1, 2, 1]}
    put(hub, "stanfordnlp/snli", train=Dataset.from_dict(made))
    found, labels, _ = run(client.load_dataset, "snli", on_bad_rows="drop")
    assert [row["sentence1"] for row in found["train"]] == ["a", "c", "d"]
    assert labels == ["entailment", "neutral", "contradiction"]


def test_a_set_that_is_not_registered(hub, run):
    put(hub, "user/own", train=rows(names=("a", "b", "c")))
    found, labels, hub_id = run(client.load_dataset, "user/own")
    assert len(found["train"]) == 6
    assert labels == ["a", "b", "c"]
    assert hub_id == "user/own"


def test_a_set_that_is_not_there(hub, run):
    with pytest.raises(ValueError, match="Cannot load 'user/none' from the Hub"):
        run(client.load_dataset, "user/none")
