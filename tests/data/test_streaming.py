"""Streams: the rows of the whole split, each once a pass, in a seeded order, under the same rules."""

import json
import re
from functools import partial
from itertools import islice

import datasets
import pytest
from datasets import ClassLabel, Dataset, Features, Value, load_dataset

from hf_ftstrategies.data import streaming
from hf_ftstrategies.data.sources import load_dataset_splits
from hf_ftstrategies.data.streaming import load_streamed_splits, stream_split

TOPICS = ("fruit", "metal", "weather")
NAMED = Features({"text": Value("string"), "label": ClassLabel(names=list(TOPICS))})


def lines(rows, label=lambda row: TOPICS[row % 3], first=0):
    return "text,label\n" + "".join(f"text {row},{label(row)}\n" for row in range(first, first + rows))


def folder(path, train, validation=None):
    path.mkdir(parents=True)
    (path / "train.csv").write_text(train)
    (path / "validation.csv").write_text(lines(6, first=100) if validation is None else validation)
    return str(path)


def plain(batch, info):
    """Features that keep everything."""
    texts = [" / ".join(map(str, row)) for row in zip(*(batch[c] for c in info.text_columns), strict=True)]
    return {"text": texts, "labels": batch["label"], "truncated": [text.endswith("1") for text in texts]}


def load(name, length, **options):
    splits, info, notes = load_streamed_splits(name, **options)
    train = splits["train"]
    train.features, train.length = partial(plain, info=info), length
    return train, splits, info, notes


def pairs(examples):
    return [(example["text"], example["labels"]) for example in examples]


def whole(name, **options):
    """The same by the way that holds all rows."""
    splits, info = load_dataset_splits(name, **options)
    batch = splits["train"].to_dict()
    return list(zip(plain(batch, info)["text"], batch["label"], strict=True)), info


def two_texts(row):
    return {"sentence1": f"a {row}", "sentence2": f"b {row}", "label": row / 2}


def many_labels(row):
    return {"text": f"text {row}", "x": str(row % 2), "y": "1"}


def jsonl(path, make, rows=8):
    path.mkdir()
    for split in ("train", "validation"):
        (path / f"{split}.jsonl").write_text("\n".join(json.dumps(make(row)) for row in range(rows)))
    return str(path)


def parquet(path, **columns):
    path.mkdir(parents=True)
    rows = Dataset.from_dict(columns, features=NAMED if len(columns) == 2 else None)
    for split in ("train", "validation"):
        rows.to_parquet(path / f"{split}.parquet")
    return str(path)


CASES = {
    "words": (lambda path: folder(path, lines(20)), {}),
    "numbers_from_1": (lambda path: folder(path, lines(20, lambda r: r % 3 + 1), lines(6, lambda r: r % 3 + 1)), {}),
    "named_feature": (lambda path: parquet(path, text=["a", "b", "c"], label=[2, 0, 1]), {}),
    "regression": (lambda path: jsonl(path, two_texts), {"task": "regression"}),
    "indicators": (lambda path: jsonl(path, many_labels), {"task": "multi_label", "label_column": ["x", "y"]}),
    "joined": (
        lambda path: parquet(path, title=["a", None], body=["b", "c"], kind=["x", "y"]),
        {"text_column": ["title", "body"], "label_column": "kind"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_pass_has_the_rows_of_the_whole_split(tmp_path, case):
    make, options = CASES[case]
    name = make(tmp_path / "data")
    expected, info_of_all = whole(name, **options)
    train, splits, info, _ = load(name, len(expected), **options)
    assert sorted(pairs(train)) == sorted(expected)
    assert (info.label_names, info.task, info.metrics) == (
        info_of_all.label_names,
        info_of_all.task,
        info_of_all.metrics,
    )
    assert splits["validation"].to_dict() == load_dataset_splits(name, **options)[0]["validation"].to_dict()


def test_registered_names_are_those_of_the_registry(tmp_path):
    (tmp_path / "imdb").mkdir()
    rows = Dataset.from_dict({"text": ["a", "b", "c"], "label": [0, 1, 1]})
    for split in ("train", "validation", "test"):
        rows.to_parquet(tmp_path / "imdb" / f"{split}.parquet")
    train, splits, info, _ = load("imdb", 3, data_root=tmp_path)
    assert info.label_names == ("neg", "pos")
    assert sorted(pairs(train)) == [("a", 0), ("b", 1), ("c", 1)]
    assert list(splits) == ["train", "validation", "test"]


def test_order_follows_seed_and_pass(tmp_path):
    name = folder(tmp_path / "data", lines(20))
    (train, *_), (again, *_), (other, *_) = (load(name, 50, shuffle_seed=seed) for seed in (1, 1, 2))
    given = pairs(train)
    assert given == pairs(train) == pairs(again) != pairs(other)
    passes = [given[:20], given[20:40], given[40:]]
    assert sorted(passes[0]) == sorted(passes[1]) == sorted(whole(name)[0])
    assert len({*map(tuple, (passes[0][:10], passes[1][:10], passes[2]))}) == 3
    assert (train.given, train.passes, len(train.look(50))) == (50, 2, 20)
    assert pairs(islice(train, 30)) == given[:30]


def test_only_a_buffer_is_read_ahead(tmp_path, monkeypatch):
    """A text that cannot be decoded is met when its turn comes, and then said as at the start."""
    monkeypatch.setattr(streaming, "BUFFER_SIZE", 10)
    name = folder(tmp_path / "data", lines(30_000))
    with open(f"{name}/train.csv", "ab") as file:
        file.write(b"\xff\xfe,fruit\n")
    train, *_ = load(name, 10**9)
    examples = iter(train)
    assert len({example["text"] for example in islice(examples, 20_000)}) == 20_000
    with pytest.raises(ValueError, match=r"train.csv is not utf-8 in line 30002"):
        list(islice(examples, 20_000))


def test_first_rows_for_validation_and_test(tmp_path):
    (tmp_path / "rows.csv").write_text(lines(30))
    train, splits, info, notes = load(str(tmp_path / "rows.csv"), 15, validation_rows=6, test_rows=4, train_rows=15)
    texts = [splits["validation"]["text"][:], splits["test"]["text"][:], sorted(e["text"] for e in train)]
    rows = [range(6), range(6, 10), range(10, 25)]
    assert texts == [
        sorted(f"text {row}" for row in part) if part[0] == 10 else [f"text {r}" for r in part] for part in rows
    ]
    assert info.label_names == TOPICS
    assert notes == [
        "validation: rows 0 to 5 of the stream, which training skips",
        "test: rows 6 to 9 of the stream, which training skips",
        "train: at most 15 rows, from row 10 of the stream on, not stratified",
    ]


def test_subsets_of_whole_splits(tmp_path):
    name = folder(tmp_path / "data", lines(9), lines(30, first=100))
    _, splits, _, notes = load(name, 9, validation_rows=6)
    assert sorted(splits["validation"]["label"][:]) == [0, 0, 1, 1, 2, 2]
    assert notes == [
        "test: none; the scores are of validation, which also chose the weights",
        "validation: 6 of 30 rows, stratified, seed 0",
    ]


BAD = {
    "empty": (" ,metal\n", "with an empty text in column 'text'", ""),
    "cells": ("text 0,fruit,more\n", "with 3 cells where there are 2 columns", ""),
    "none": ("text 0,\n", "without a label", "\nLabels must be known"),
    "label": (
        "text 0,friut\n",
        "whose label is 'friut', not one of fruit, metal, weather. Did you mean 'fruit'?",
        "\nLabels must be known before a stream is read: from its features, the registry or validation.",
    ),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("taken", [0, 3])
def test_a_bad_row_stops_or_is_left_out(tmp_path, case, taken):
    """Rows are counted from the first of the file, also where validation takes some."""
    bad, fault, hint = BAD[case]
    name = folder(tmp_path / "data", lines(2005) + bad)
    name, options = (f"{name}/train.csv", {"validation_rows": 3}) if taken else (name, {})
    with pytest.raises(ValueError, match=re.escape(f"bad row: row 2,005 (counted from 0) {fault}{hint}")):
        list(load(name, 2005, **options)[0])
    train, *_ = load(name, 3000, **options, on_bad_rows="drop")
    assert {*pairs(train)} == {(f"text {row}", row % 3) for row in range(taken, 2005)}
    notes = train.notes(3000)
    assert notes[-1] == f"dropped: train: 1 row(s) {fault} (row 2005)"
    assert f"in 2 passes over {2005 - taken:,} rows" in notes[0]


def several_files(path):
    """A data set of the Hub: three files of one split."""
    for split, count in (("train", 3), ("validation", 1)):
        for file in range(count):
            rows = [f"{split} {file} {row}" for row in range(40)] + [""] * (split == "train" and file == 1)
            labels = [row % 3 for row in range(len(rows))]
            Dataset.from_dict({"text": rows, "label": labels}, features=NAMED).to_parquet(
                path / f"{split}-{file}.parquet"
            )


@pytest.fixture
def hub(tmp_path, monkeypatch):
    several_files(tmp_path)
    calls = []

    def from_folder(*arguments, **options):
        calls.append((arguments, options))
        return load_dataset(str(tmp_path), streaming=True)

    monkeypatch.setattr(datasets, "load_dataset", from_folder)
    return calls


def test_several_files_of_the_hub_are_one_shard(hub):
    train, _, info, _ = load("user/name", 240, on_bad_rows="drop")
    assert hub == [(("user/name", None), {"revision": None, "streaming": True})]
    given = pairs(train)
    expected = {(f"train {file} {row}", row % 3) for file in range(3) for row in range(40)}
    assert {*given[:120]} == {*given[120:]} == expected
    assert given[:120] != given[120:]
    assert info.label_names == TOPICS
    assert not hasattr(train, "n_shards")
    assert train.notes(240)[-1] == "dropped: train: 1 row(s) with an empty text in column 'text' (row 40)"
    with pytest.raises(ValueError, match=r"row 40 of file 1 \(counted from 0\) with an empty text"):
        list(load("user/name", 120)[0])


def test_a_split_with_raw_columns(tmp_path, hub):
    name = folder(tmp_path / "data", lines(3))
    rows = list(stream_split(name))
    assert [(row["text"], row["label"]) for row in rows] == [(f"text {row}", TOPICS[row]) for row in range(3)]
    assert [row["text"] for row in stream_split("user/name", "validation").take(2)] == [
        "validation 0 0",
        "validation 0 1",
    ]
    with pytest.raises(ValueError, match=r"no split 'trian'. Did you mean 'train'\?"):
        stream_split(name, "trian")


def test_what_was_seen_is_read_again_where_it_must_be(tmp_path):
    name = folder(tmp_path / "data", lines(20))
    (trained, *_), (not_trained, *_) = load(name, 50), load(name, 50)
    given = list(trained)
    for examples in (7, 30):
        seen = not_trained.look(examples)
        assert seen["labels"] == [e["labels"] for e in given[: len(seen)]] == trained.look(examples)["labels"]
        assert seen["truncated"] == [e["truncated"] for e in given[: len(seen)]]
        assert len(seen) == min(examples, 20)
    assert trained.notes(50) == not_trained.notes(50)


def test_only_a_sample_of_labels_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "SAMPLE", 5)
    train, *_ = load(folder(tmp_path / "data", lines(20)), 20)
    assert [e["labels"] for e in train][:5] == train.look(20)["labels"]
    assert len(train.look(20)) == 20
    assert "of the 20 examples seen in the first pass (its first 5)" in train.notes(20)[1]


def test_not_in_a_worker_of_a_dataloader(tmp_path, monkeypatch):
    train, *_ = load(folder(tmp_path / "data", lines(20)), 20)
    monkeypatch.setattr(streaming, "get_worker_info", object)
    with pytest.raises(ValueError, match="dataloader_num_workers=0"):
        list(train)


def unlabelled(path):
    return folder(path, lines(6), "text,label\na,\nb,\n")


def other_names(path):
    parquet(path, text=["a", "b", "c"], label=[2, 0, 1])
    features = Features({"text": Value("string"), "label": ClassLabel(names=["x", "y"])})
    Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]}, features=features).to_parquet(path / "validation.parquet")
    return str(path)


def only_validation(path):
    folder(path, lines(3))
    (path / "train.csv").unlink()
    return str(path)


REFUSED = [
    (lambda path: folder(path, lines(6)) + "/train.csv", {}, "no validation split.*give validation_rows"),
    (lambda path: folder(path, lines(6)) + "/train.csv", {"validation_rows": 7}, "but the stream has 6 rows"),
    (
        lambda path: folder(path, lines(6)) + "/train.csv",
        {"validation_rows": 6},
        "after its first 6 rows: there is no row",
    ),
    (lambda path: folder(path, lines(6)), {"validation_rows": 7}, "validation_rows is 7, but the split has 6"),
    (lambda path: folder(path, lines(6)), {"text_column": "txt"}, "no column 'txt'. Did you mean 'text'"),
    (lambda path: folder(path, lines(6)), {"on_bad_rows": "skip"}, "on_bad_rows must be"),
    (unlabelled, {}, "no split has labels"),
    (other_names, {}, "label names differ between splits"),
    (only_validation, {}, "the splits validation, but no train split"),
]


@pytest.mark.parametrize(("make", "options", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_refused_before_training(tmp_path, make, options, message):
    with pytest.raises(ValueError, match=message):
        load_streamed_splits(make(tmp_path / "data"), **options)


def test_no_row_is_left(tmp_path):
    train, *_ = load(folder(tmp_path / "data", "text,label\n,fruit\n"), 5, on_bad_rows="drop")
    with pytest.raises(
        ValueError, match=r"no row of the split 'train' is left. dropped: train: 1 row\(s\) with an empty"
    ):
        list(train)
