"""Random bytes as CSV, JSON lines and Parquet: rows in the columns of the task, or one `ValueError`."""

import io
import json

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from hf_ftstrategies.data.sources import load_dataset_splits
from tests.fuzz.attempt import attempt
from tests.fuzz.damage import damaged

CELLS = st.sampled_from(
    ["text", "label", "a", "0", "1", "1.5", "-1", "nan", "", " ", "é", "\0", "\ud800", "\ufeff", "=1"]
)
MARKS = st.sampled_from([",", ",", ";", "\t", '"', "\n", "\n", "\r", "\r\n", "'", "\\", "\x1a", "\u2028", "\x0b", "|"])
CSV = st.tuples(st.sampled_from(["", "text,label\n"]), st.lists(st.one_of(CELLS, MARKS), max_size=30).map("".join)).map(
    "".join
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just("\ud800")),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
    max_leaves=4,
)
ROW = st.one_of(st.fixed_dictionaries({"text": VALUES}, optional={"label": VALUES, "": VALUES}), VALUES)
HOSTILE = st.sampled_from(
    ["[" * 15_000, '{"text": ' * 5000, "9" * 5000, '{"text": "a", "label": ' + "9" * 5000 + "}", "{", "NaN"]
)
JSON = st.lists(st.one_of(ROW.map(json.dumps), HOSTILE), max_size=4).map("\n".join)


def parquet_file(metadata=None, **columns):
    sink, table = io.BytesIO(), pyarrow.table(columns)
    parquet.write_table(table.replace_schema_metadata(metadata), sink)
    return sink.getvalue()


def of_datasets(features):
    """A file that says of itself that `datasets` wrote it."""
    described = json.dumps({"info": {"features": features}}) if features is not None else "{"
    return parquet_file({"huggingface": described}, text=["a", "b"], label=[0, 1])


TABLES = [
    parquet_file(text=["a", "b", "c"], label=[0, 1, 0]),
    parquet_file(text=["a", None], label=["x", "y"], other=[{"deep": [1]}, None]),
    parquet_file(
        text=pyarrow.array(["a", "b"]).dictionary_encode(), label=pyarrow.array([1.0, 2.0], pyarrow.float16())
    ),
    parquet_file(text=pyarrow.array([b"a", b"\xff"]), label=pyarrow.array([10**15, 2], pyarrow.timestamp("ns"))),
    parquet_file(text=pyarrow.array(["a", "b"], pyarrow.large_string()), label=pyarrow.array([None, None])),
    of_datasets({"text": {"dtype": "string", "_type": "Value"}, "label": {"names": ["n", "p"], "_type": "ClassLabel"}}),
    of_datasets({"text": {"dtype": "string", "_type": "Nope"}, "label": {"dtype": "int64", "_type": "Value"}}),
    of_datasets({"text": {"dtype": "nope", "_type": "Value"}, "label": {"dtype": "int64", "_type": "Value"}}),
    of_datasets({"text": {"dtype": "string", "_type": "Value"}, "label": {"names": 3, "_type": "ClassLabel"}}),
    of_datasets({"other": {"dtype": "string", "_type": "Value"}}),
    of_datasets([]),
    of_datasets(None),
]


def assert_rows_or_refusal(folder, name, content, **options):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    loaded, message = attempt(lambda: load_dataset_splits(str(path), **options))
    path.unlink()
    if message is None:
        splits, info = loaded
        assert len(splits["train"]) == info.rows["train"] > 0
        assert all(text.strip() for text in splits["train"]["text"])
        assert set(splits["train"]["label"]) <= set(range(len(info.label_names)))


OPTIONS = st.fixed_dictionaries({}, optional={"on_bad_rows": st.just("drop"), "quotes": st.just(False)})


@settings(max_examples=150)
@given(content=st.one_of(CSV, CSV, st.binary(max_size=50)), options=OPTIONS, suffix=st.sampled_from(["csv", "tsv"]))
def test_csv(tmp_path_factory, content, options, suffix):
    assert_rows_or_refusal(tmp_path_factory.getbasetemp(), f"data.{suffix}", content, **options)


@settings(max_examples=150)
@given(content=st.one_of(JSON, JSON, st.binary(max_size=50)), options=OPTIONS)
def test_json_lines(tmp_path_factory, content, options):
    assert_rows_or_refusal(tmp_path_factory.getbasetemp(), "data.jsonl", content, **options)


@settings(max_examples=150)
@given(
    content=st.sampled_from(TABLES).flatmap(lambda whole: st.one_of(st.just(whole), damaged(whole))), options=OPTIONS
)
def test_parquet(tmp_path_factory, content, options):
    assert_rows_or_refusal(tmp_path_factory.getbasetemp(), "data.parquet", content, **options)


@pytest.mark.parametrize("table", range(len(TABLES)))
def test_whole_tables(tmp_path, table):
    assert_rows_or_refusal(tmp_path, "data.parquet", TABLES[table])
