"""What a run's rows are, and what its reader is told about them."""

import pytest

from hf_ftstrategies.pipeline.arguments import RunArguments
from hf_ftstrategies.pipeline.fine_tuning import load_splits

REPEATED = "train: 1 row(s) repeat the text of an earlier row (row 11)"
CLEAN = "leakage, white space aside: 0 of {} texts of validation also stand among the rows trained on"


@pytest.fixture
def folder(tmp_path):
    texts = [f"text {i}" for i in range(11)] + ["text 9"]
    rows = [f"{text},{'ab'[i % 2]}\n" for i, text in enumerate(texts)]
    (tmp_path / "train.csv").write_text("text,label\n" + "".join(rows))
    return tmp_path


def test_notes_on_rows_that_are_all_used(folder):
    (folder / "validation.csv").write_text("text,label\nother,a\nanother,b\n")
    _, _, notes = load_splits(RunArguments(dataset=str(folder)))
    assert notes == [CLEAN.format(2), REPEATED]


def test_notes_on_more_rows_than_are_used(folder):
    (folder / "validation.csv").write_text("text,label\nother,a\nanother,b\n")
    splits, _, notes = load_splits(RunArguments(dataset=str(folder), train_rows=4))
    assert len(splits["train"]) == 4
    assert notes == [
        "train: 4 of 12 rows, stratified, seed 0",
        CLEAN.format(2),
        f"before rows were selected, {REPEATED}",
    ]
