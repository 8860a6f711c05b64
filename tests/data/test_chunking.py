"""Chunks: the same as the tokenizer's own overflow, nothing lost, and one padded batch with the texts' counts."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ftstrategies.data.chunking import ChunkCollator, encode_chunks
from hf_ftstrategies.data.truncation import encode_batch, truncate
from tests.data.tiny import TOKENIZERS, bert, minilm, no_special_tokens, roberta, xlnet


def text(count):
    return " ".join(f"w{index % 100}" for index in range(count))


TEXTS = [text(40), text(1), text(8), text(9)]
CHUNKS = st.none() | st.integers(1, 5)


@pytest.mark.parametrize("make", [bert, roberta, xlnet, minilm])
@pytest.mark.parametrize("stride", [0, 3])
def test_chunks_are_the_tokenizers_own(make, stride):
    tokenizer = make()
    batch = encode_chunks(tokenizer, TEXTS, max_length=10, stride=stride)
    own = tokenizer(TEXTS, truncation=True, max_length=10, stride=stride, return_overflowing_tokens=True)
    for name in {"input_ids", "token_type_ids"} & own.keys():
        assert [chunk for chunks in batch[name] for chunk in chunks] == own[name]
    assert batch["chunks"] == [own["overflow_to_sample_mapping"].count(row) for row in range(len(TEXTS))]
    assert not any(batch["truncated"])


@pytest.mark.parametrize("make", TOKENIZERS)
def test_one_chunk_is_the_truncated_text(make):
    tokenizer = make()
    for strategy in ("head", "tail", "half", "head_tail"):
        cut = {"max_length": 9, "strategy": strategy, "head": 0.5}
        chunks, whole = encode_chunks(tokenizer, TEXTS, max_chunks=1, **cut), encode_batch(tokenizer, TEXTS, **cut)
        whole.pop("attention_mask")
        assert chunks.pop("chunks") == [1] * 4
        for name in ("length", "truncated"):
            assert chunks.pop(name) == whole.pop(name)
        assert {name: [row[0] for row in column] for name, column in chunks.items()} == whole


@settings(max_examples=50, deadline=None)
@given(count=st.integers(0, 60), max_length=st.integers(3, 12), max_chunks=CHUNKS, data=st.data())
def test_equations_on_plain_lists(count, max_length, max_chunks, data):
    tokenizer, budget = bert(), max_length - 2
    stride = data.draw(st.integers(0, budget - 1))
    batch = encode_chunks(
        tokenizer, [text(count)], max_length=max_length, stride=stride, max_chunks=max_chunks, strategy="tail"
    )
    ids = tokenizer(text(count), add_special_tokens=False, verbose=False)["input_ids"]
    if max_chunks is not None:
        ids = truncate(ids, budget + (max_chunks - 1) * (budget - stride), "tail")
    contents = [chunk[1:-1] for chunk in batch["input_ids"][0]]
    expected = 1 + max(0, -(-(len(ids) - budget) // (budget - stride)))
    assert len(contents) == batch["chunks"][0] == expected
    assert contents[0] + [token for chunk in contents[1:] for token in chunk[stride:]] == ids
    assert all(len(chunk) == budget for chunk in contents[:-1])
    assert batch["length"] == [sum(len(chunk) + 2 for chunk in contents)]
    assert batch["truncated"] == [len(ids) < count]


def test_published_number_of_chunks():
    tokenizer = bert()
    tokenizer.model_max_length = 512
    assert encode_chunks(tokenizer, [text(n) for n in (0, 510, 511, 1020)])["chunks"] == [1, 1, 2, 2]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("make", [bert, roberta])
def test_a_batch_is_all_chunks_padded(make, side):
    from datasets import Dataset

    tokenizer = make()
    tokenizer.padding_side = side
    rows = Dataset.from_dict({"text": TEXTS[:3], "labels": [2, 0, 1]})
    rows = rows.map(lambda batch: encode_chunks(tokenizer, batch["text"], max_length=20), batched=True)
    batch = ChunkCollator(tokenizer)([rows[index] for index in range(3)])
    assert {name: tuple(tensor.shape) for name, tensor in batch.items()} == {
        "chunk_counts": (3,),
        **dict.fromkeys(tokenizer.model_input_names, (5, 20)),
        "labels": (3,),
    }
    assert next(iter(batch)) == "chunk_counts"
    assert batch["chunk_counts"].tolist() == [3, 1, 1]
    chunks = [chunk for row in rows["input_ids"] for chunk in row]
    for ids, mask, chunk in zip(batch["input_ids"], batch["attention_mask"], chunks, strict=True):
        assert ids[mask.bool()].tolist() == chunk
        assert mask.sum() == len(chunk)
        assert mask[0 if side == "right" else -1] == 1
    assert (batch["input_ids"][batch["attention_mask"] == 0] == tokenizer.pad_token_id).all()


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([1, 2], torch.tensor([1, 2])),
        ([0.5, 2.0], torch.tensor([0.5, 2.0])),
        ([[1.0, 0.0], [0.0, 1.0]], torch.tensor([[1.0, 0.0], [0.0, 1.0]])),
        ([None, None], None),
    ],
)
def test_labels_of_every_task(labels, expected):
    rows = [{"input_ids": [[1, 2]], **({} if label is None else {"labels": label})} for label in labels]
    batch = ChunkCollator(bert())(rows)
    assert ("labels" in batch) == (expected is not None)
    if expected is not None:
        assert batch["labels"].dtype == expected.dtype
        assert torch.equal(batch["labels"], expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: encode_chunks(bert(), ["w1"], max_length=65), "max_length=65 is more than the 64"),
        (lambda: encode_chunks(bert(), ["w1"], max_length=2), "adds 2 special tokens"),
        (lambda: encode_chunks(bert(), ["w1"], max_length=10, stride=8), "stride is 8: give 0 to 7, .* 8 content"),
        (lambda: encode_chunks(bert(), ["w1"], max_length=10, stride=-1), "stride is -1"),
        (lambda: encode_chunks(bert(), ["w1"], max_length=10, max_chunks=0), "max_chunks is 0: give 1 or more"),
        (lambda: encode_chunks(bert(), ["w1"], max_length=10, max_chunks=2), "head=128 leaves no room"),
        (
            lambda: encode_chunks(bert(), ["w1"], max_length=10, max_chunks=2, strategy="tial"),
            r"'tial'. Did you mean 'tail'\?",
        ),
        (lambda: encode_chunks(no_special_tokens(), ["w1", " "], max_length=10), "Text ' ' has no tokens"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
