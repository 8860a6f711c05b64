"""Masks: those of a literal loop with the same draws, what must hold of any, and batches of them."""

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from hf_ftstrategies.data.masking import MaskedExamples, Masker, PretrainingCollator, mask_examples, word_starts
from hf_ftstrategies.data.next_sentence import build_next_sentence_examples
from tests.data import tiny

CLS, SEP, PAD, UNK = 1, 2, 3, 0
IDS = st.lists(st.integers(4, 103), min_size=1, max_size=60)


def with_masks(tokenizer):
    tokenizer.add_special_tokens({"mask_token": "[MASK]"})
    return tokenizer


def bert():
    tokenizer = with_masks(tiny.bert())
    tokenizer.add_special_tokens({"cls_token": "[CLS]", "sep_token": "[SEP]"})
    return tokenizer


def pieces(*tokens):
    """A tokenizer with these tokens after BERT's special ones."""
    special = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    vocabulary = {token: index for index, token in enumerate([*special.values(), *tokens])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    return with_masks(PreTrainedTokenizerFast(tokenizer_object=backend, **special))


def wordpiece():
    """50 words, and as many pieces that continue one."""
    return pieces(*(f"w{index}" for index in range(50)), *(f"##w{index}" for index in range(50)))


def philox(seed, epoch, index):
    return np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, 0, 0, index]))


def literal(ids, tokenizer, share, most, whole_words, generator):
    """BERT's masks with plain lists, from the same draws."""
    tokens = tokenizer.convert_ids_to_tokens(ids)
    words = []
    for place, token in enumerate(tokens):
        if token in ("[CLS]", "[SEP]", "[PAD]", "[MASK]"):
            words.append(None)
        elif whole_words and token.startswith("##") and words and words[-1]:
            words[-1].append(place)
        else:
            words.append([place])
    words = [word for word in words if word]
    count = max(1, round(len(ids) * share))
    if most is not None:
        count = min(count, most)
    keys = [generator.random() for _ in words]
    order = sorted(range(len(words)), key=lambda number: keys[number])
    chosen = []
    for number in order:
        if len(chosen) + len(words[number]) <= count:
            chosen += words[number]
    if words and not chosen:
        chosen = words[order[0]][:count]
    chosen.sort()
    actions = [generator.random() for _ in chosen]
    random_ids = [int(generator.integers(len(tokenizer))) for _ in chosen]
    masked = list(ids)
    for place, action, random_id in zip(chosen, actions, random_ids):
        if action < 0.8:
            masked[place] = tokenizer.mask_token_id
        elif action < 0.9:
            masked[place] = random_id
    return masked, chosen, [ids[place] for place in chosen]


@pytest.mark.parametrize("whole_words", [False, True])
@settings(deadline=None)
@given(
    first=IDS,
    second=IDS,
    share=st.sampled_from([0.15, 0.01, 0.5, 1.0]),
    most=st.none() | st.integers(1, 20),
    seed=st.integers(0, 99),
)
def test_the_same_as_a_literal_loop(whole_words, first, second, share, most, seed):
    tokenizer = wordpiece()
    ids = [CLS, *first, SEP, *second, SEP, PAD]
    masker = Masker(tokenizer, share, most, whole_words)
    row = masker(ids, philox(seed, 0, 0))
    found = tuple(row[name].tolist() for name in ("input_ids", "masked_positions", "labels"))
    assert found == literal(ids, tokenizer, share, most, whole_words, philox(seed, 0, 0))


@settings(deadline=None)
@given(ids=IDS, most=st.none() | st.integers(1, 20), seed=st.integers(0, 99))
def test_the_published_number_of_positions_and_none_special(ids, most, seed):
    whole = [CLS, *ids, SEP]
    row = Masker(bert(), max_predictions=most)(whole, philox(seed, 0, 0))
    places = row["masked_positions"]
    expected = max(1, round(0.15 * len(whole)))
    assert len(places) == len(row["labels"]) == min(expected, len(ids), most or expected)
    assert (np.diff(places) > 0).all()
    assert set(places) <= set(range(1, len(ids) + 1))
    assert (np.array(whole)[places] == row["labels"]).all()
    others = np.setdiff1d(np.arange(len(whole)), places)
    assert (np.array(whole)[others] == row["input_ids"][others]).all()


def test_eighty_ten_ten_and_random_tokens_of_the_whole_vocabulary():
    masker, ids = Masker(bert(), share=1.0), np.full(100_000, 50)
    masked = masker(ids, philox(0, 0, 0))["input_ids"]
    shares = np.array([(masked == 104).mean(), ((masked != 104) & (masked != 50)).mean(), (masked == 50).mean()])
    vocabulary = 105
    # A random token is [MASK] or the token itself once in a vocabulary.
    expected = np.array([0.8 + 0.1 / vocabulary, 0.1 * (vocabulary - 2) / vocabulary, 0.1 + 0.1 / vocabulary])
    assert (abs(shares - expected) < 4 * np.sqrt(expected * (1 - expected) / len(ids))).all()
    assert set(masked) == set(range(vocabulary))


def test_every_position_is_chosen_equally_often():
    masker, ids = Masker(bert()), [CLS, *range(4, 42), SEP]
    draws = 2000
    chosen = np.concatenate([masker(ids, philox(1, 0, index))["masked_positions"] for index in range(draws)])
    share = np.bincount(chosen, minlength=40)[1:39] / draws
    expected = 6 / 38
    assert (abs(share - expected) < 4.5 * np.sqrt(expected * (1 - expected) / draws)).all()


def test_pieces_of_a_word_are_masked_together():
    tokenizer = wordpiece()
    # Words of 1, 2, 1, 4 pieces, a separator, and a segment that begins inside a word.
    ids = [CLS, 4, 5, 54, 6, 7, 55, 56, 57, SEP, 58, 59, SEP]
    words = [{1}, {2, 3}, {4}, {5, 6, 7, 8}, {10, 11}]
    seen = set()
    for index in range(300):
        places = set(Masker(tokenizer, share=0.4, whole_words=True)(ids, philox(0, 0, index))["masked_positions"])
        assert len(places) <= 5
        assert all(word <= places or not word & places for word in words)
        seen |= {frozenset(word) for word in words if word <= places}
    assert seen == set(map(frozenset, words))


def test_a_word_longer_than_the_number_of_positions_is_cut():
    masker = Masker(wordpiece(), whole_words=True)
    assert masker([CLS, 4, 54, 55, 56, 57, SEP], philox(0, 0, 0))["masked_positions"].tolist() == [1]
    # without special tokens, and beginning inside a word
    assert masker([54, 55, 56, 57, 58], philox(0, 0, 0))["masked_positions"].tolist() == [0]


@pytest.mark.parametrize(
    ("tokens", "starting"),
    [
        (["play", "##ing", "##s", "Ġ", "▁"], {"play", "Ġ", "▁"}),
        (["Ġplay", "ing", "Ġthe", "s", "##"], {"Ġplay", "Ġthe"}),
        (["▁play", "ing", "▁", ",", "##"], {"▁play", "▁"}),
    ],
)
def test_word_starts_by_the_marks_of_the_vocabulary(tokens, starting):
    tokenizer = pieces(*tokens)
    found = {token for token, starts in zip(tokenizer.convert_ids_to_tokens(range(len(tokenizer))),
                                            word_starts(tokenizer)) if starts}  # fmt: skip
    assert found == starting | {"[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"}


def test_word_starts_of_a_real_vocabulary():
    tokenizer = tiny.minilm()
    ids = tokenizer("unaffordable cars, 3 films")["input_ids"]
    tokens = tokenizer.convert_ids_to_tokens(ids)
    assert word_starts(tokenizer)[ids].tolist() == [not token.startswith("##") for token in tokens]
    assert any(token.startswith("##") for token in tokens)


def test_without_marks_every_token_is_a_word():
    assert word_starts(bert()).all()


def test_the_unknown_token_is_text_and_a_text_without_tokens_has_no_masks():
    row = Masker(bert())([CLS, UNK, SEP], philox(0, 0, 0))
    assert row["labels"].tolist() == [UNK]
    for whole_words in (False, True):
        row = Masker(bert(), whole_words=whole_words)([CLS, SEP], philox(0, 0, 0))
        assert row["input_ids"].tolist() == [CLS, SEP]
        assert row["masked_positions"].tolist() == row["labels"].tolist() == []


@pytest.fixture
def examples():
    rng = np.random.default_rng(0)
    documents = [[rng.integers(4, 104, size=rng.integers(3, 12)) for _ in range(8)] for _ in range(6)]
    return build_next_sentence_examples(documents, bert(), max_length=40)


def same(one, two):
    return one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("whole_words", [False, True])
def test_masks_follow_from_seed_epoch_and_index_alone(examples, whole_words):
    tokenizer = bert()
    data = MaskedExamples(examples, tokenizer, whole_words=whole_words, seed=7)
    masker = Masker(tokenizer, whole_words=whole_words)
    epochs = []
    for epoch in (2, 0, 1):
        data.set_epoch(epoch)
        order = np.random.default_rng(epoch).permutation(len(data))
        rows = {index: data[index] for index in order.tolist()}
        for index, row in rows.items():
            expected = masker(examples["input_ids"][index], philox(7, epoch, index))
            kept = {name: column[index] for name, column in examples.items() if name != "input_ids"}
            assert same(row, kept | expected)
        epochs.append(rows)
    for one, two in ((0, 1), (0, 2), (1, 2)):
        assert not any(same(epochs[one][index], epochs[two][index]) for index in epochs[0])
    other_seed = MaskedExamples(examples, tokenizer, seed=8)
    assert not any(same(row, other_seed[index]) for index, row in epochs[1].items())
    assert same(data[-1], data[len(data) - 1])
    with pytest.raises(IndexError):
        data[len(data)]


def test_stored_masks_are_those_of_epoch_0(examples):
    from datasets import Dataset

    settings = {"tokenizer": bert(), "max_predictions": 3, "seed": 5}
    rows = Dataset.from_dict(examples)
    dynamic = MaskedExamples(rows, **settings)
    plain = mask_examples(examples, range(len(rows)), **settings)
    options = {"batched": True, "batch_size": 5, "with_indices": True, "fn_kwargs": settings}
    stored, streamed = rows.map(mask_examples, **options), rows.to_iterable_dataset().map(mask_examples, **options)
    for index, row in enumerate(streamed):
        assert same(row, dynamic[index])
        assert same(row, stored[index])
        assert same({name: row[name] for name in plain}, {name: column[index] for name, column in plain.items()})
    assert len(dynamic) == len(stored) == index + 1
    assert max(map(len, plain["labels"])) == 3


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_workers_that_live_on_hear_of_the_next_epoch(examples):
    data = MaskedExamples(examples, bert())
    loader = torch.utils.data.DataLoader(
        data,
        batch_size=4,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="fork",
        collate_fn=PretrainingCollator(bert()),
    )
    for epoch in (0, 1):
        data.set_epoch(epoch)
        masked = [ids[mask.bool()].tolist() for batch in loader for ids, mask in
                  zip(batch["input_ids"], batch["attention_mask"])]  # fmt: skip
        assert masked == [data[index]["input_ids"].tolist() for index in range(len(data))]


def test_copies_keep_their_masks(examples):
    data = MaskedExamples(examples, bert())
    data.set_epoch(3)
    assert same(copy.deepcopy(data)[2], data[2])
    assert same(pickle.loads(pickle.dumps(data))[2], data[2])


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("next_sentence", [True, False])
def test_a_batch_holds_every_row(side, next_sentence):
    tokenizer = bert()
    tokenizer.padding_side = side
    documents = [[list(range(4, 4 + size)) for size in sizes] for sizes in ((9, 30), (3,), (20, 20, 5))]
    examples = build_next_sentence_examples(documents, tokenizer, max_length=40, next_sentence=next_sentence)
    rows = list(MaskedExamples(examples, tokenizer))
    batch = PretrainingCollator(tokenizer)(rows)
    count, longest, most = len(rows), max(len(row["input_ids"]) for row in rows), max(len(r["labels"]) for r in rows)
    shapes = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (count, longest))
    shapes |= dict.fromkeys(("masked_positions", "labels"), (count, most))
    shapes |= {"next_sentence_label": (count,)} if next_sentence else {}
    assert {name: tuple(tensor.shape) for name, tensor in batch.items()} == shapes
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}
    for index, row in enumerate(rows):
        is_token, size = batch["attention_mask"][index].bool(), len(row["labels"])
        for name, padding in (("input_ids", PAD), ("token_type_ids", 0)):
            assert batch[name][index][is_token].tolist() == row[name].tolist()
            assert set(batch[name][index][~is_token].tolist()) <= {padding}
        assert is_token[0 if side == "right" else -1]
        assert batch["labels"][index].tolist() == row["labels"].tolist() + [-100] * (most - size)
        # At the masked positions are the tokens that stand there in the row.
        places = batch["masked_positions"][index]
        assert (batch["input_ids"][index][places[:size]].tolist()) == row["input_ids"][row["masked_positions"]].tolist()
        assert set(places[size:].tolist()) <= {0}
        if next_sentence:
            assert batch["next_sentence_label"][index] == row["next_sentence_label"]


def test_a_batch_of_a_tokenizer_without_types():
    tokenizer = with_masks(tiny.roberta())
    examples = build_next_sentence_examples([[[5, 6, 7]], [[8]]], tokenizer, max_length=20)
    batch = PretrainingCollator(tokenizer)(list(MaskedExamples(examples, tokenizer)))
    assert set(batch) == {"input_ids", "attention_mask", "masked_positions", "labels", "next_sentence_label"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Masker(tiny.bert()), "has no mask token"),
        (lambda: Masker(bert(), share=0), "share of masked tokens is 0: give"),
        (lambda: MaskedExamples({"input_ids": []}, bert(), share=1.5), "is 1.5"),
        (lambda: mask_examples({"input_ids": []}, [], bert(), max_predictions=0), "max_predictions is 0: give 1"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
