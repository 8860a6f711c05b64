"""Truncation: the same tokens as written down with plain lists, and inputs as the tokenizer itself makes them."""

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_ftstrategies.data.truncation import encode_batch, truncate, truncate_pair
from tests.data.tiny import TOKENIZERS, bert, minilm, roberta

IDS = st.lists(st.integers(0, 30_000), max_size=60)


def text(count, first=0):
    return " ".join(f"w{(first + index) % 100}" for index in range(count))


@given(ids=IDS, budget=st.integers(1, 40))
def test_equations_on_plain_lists(ids, budget):
    if len(ids) <= budget:
        expected = dict.fromkeys(("head", "tail", "half", "head_tail"), ids)
    else:
        half, third = budget // 2, budget // 3
        expected = {
            "head": ids[:budget],
            "tail": ids[-budget:],
            "half": ids[:half] + (ids[-half:] if half else []),
            "head_tail": ids[:third] + ids[third - budget :],
        }
    for strategy in ("head", "tail", "half"):
        assert truncate(ids, budget, strategy) == expected[strategy]
    if third := budget // 3:
        assert truncate(ids, budget, "head_tail", head=third) == expected["head_tail"]


def test_published_lengths():
    ids = list(range(1000))
    assert truncate(ids, 510) == ids[:128] + ids[-382:]
    assert truncate(ids, 510, "half") == ids[:255] + ids[-255:]
    assert len(truncate(ids, 509, "half")) == 508
    assert truncate(ids, 510, "head_tail", head=0.25) == ids[:127] + ids[-383:]
    assert truncate(ids, 0, "head") == truncate(ids, 0, "tail") == []


@given(first=IDS, second=IDS, budget=st.integers(0, 50))
def test_pair_takes_from_the_longer_text(first, second, budget):
    one, two = list(first), list(second)
    while len(one) + len(two) > budget:
        (one if len(one) > len(two) else two).pop()
    assert truncate_pair(first, second, budget, "head") == (one, two)


@given(first=IDS, second=IDS, budget=st.integers(2, 50), head=st.data())
def test_pair_keeps_head_and_tail_in_proportion(first, second, budget, head):
    head = head.draw(st.integers(1, budget - 1))
    shares = [len(side) for side in truncate_pair(first, second, budget, "head")]
    for ids, share, kept in zip((first, second), shares, truncate_pair(first, second, budget, head=head), strict=True):
        front = head * share // budget
        assert kept == (ids if share == len(ids) else ids[:front] + ids[len(ids) - (share - front) :])


@pytest.mark.parametrize("make", TOKENIZERS)
@pytest.mark.parametrize("pair", [False, True])
def test_inputs_are_the_tokenizers_own(make, pair):
    tokenizer = make()
    texts = [[text(3), text(30), "w1"], *([[text(4, 9), "w2", ""]] if pair else [])]
    own = tokenizer(*texts, truncation=True, max_length=20)
    batch = encode_batch(tokenizer, *texts, max_length=20, strategy="head")
    for name in tokenizer.model_input_names:
        assert batch[name] == own[name]
    whole = tokenizer(*texts, verbose=False)["input_ids"]
    assert batch["length"] == [len(ids) for ids in batch["input_ids"]]
    assert batch["truncated"] == [len(ids) > 20 for ids in whole]
    assert set(batch) == {*tokenizer.model_input_names, "length", "truncated"}


def test_special_tokens_stay_around_head_and_tail():
    tokenizer = bert()
    ids = encode_batch(tokenizer, [text(50)], max_length=12, head=4)["input_ids"][0]
    assert tokenizer.decode(ids) == "[CLS] w0 w1 w2 w3 w44 w45 w46 w47 w48 w49 [SEP]"
    ids = encode_batch(roberta(), [text(50)], [text(50, 50)], max_length=12, head=0.5)["input_ids"][0]
    assert roberta().decode(ids) == "<s> w0 w1 w48 w49 </s> </s> w50 w51 w98 w99 </s>"


def test_token_types_of_a_truncated_pair():
    types = encode_batch(bert(), [text(50)], [text(50)], max_length=11, strategy="tail")["token_type_ids"][0]
    assert types == [0] * 6 + [1] * 5


def test_works_inside_map_and_says_nothing(caplog):
    from datasets import Dataset

    rows = Dataset.from_dict({"text": [text(90), text(2)]})
    tokenizer = minilm()
    tokenizer.model_max_length = 64
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoded = rows.map(lambda batch: encode_batch(tokenizer, batch["text"], max_length=32, head=8), batched=True)
    assert encoded["truncated"][:] == [True, False]
    assert max(encoded["length"]) == 32
    assert not caplog.records


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: truncate([1], 10, "haed"), r"Unknown truncation strategy 'haed'. Did you mean 'head'\?"),
        (lambda: truncate([1], 100), "head=128 leaves no room for a tail: 100 content tokens"),
        (lambda: truncate([1], 10, head=0), "head=0"),
        (lambda: truncate([1], 10, head=1.0), "between 0 and 1, got 1.0"),
        (lambda: truncate([1], -1, "head"), "0 or more, got -1"),
        (lambda: truncate_pair([1], [2], 10, head=10), "leaves no room for a tail"),
        (lambda: encode_batch(bert(), ["w1"], max_length=65, head=8), "max_length=65 is more than the 64"),
        (lambda: encode_batch(bert(), ["w1"], ["w2"], max_length=3, head=1), "adds 3 special tokens"),
        (lambda: encode_batch(bert(), ["w1"], ["w2", "w3"], max_length=9), "1 texts but 2 second texts"),
        (lambda: encode_batch(bert(), ["w1"], max_length=32), "head=128 leaves no room"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
