"""Next-sentence examples: those of BERT's algorithm written down with plain lists, and what must hold of any."""

import random
from itertools import chain

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import hf_ftstrategies
from hf_ftstrategies.data.next_sentence import (
    build_next_sentence_examples,
    example_statistics,
    next_sentence_examples,
)
from tests.data import tiny
from tests.data.tiny import TOKENIZERS, roberta

CLS, SEP = 1, 2  # of bert() in tests/data/tiny.py
LENGTHS = st.lists(st.lists(st.integers(0, 12), max_size=6), min_size=1, max_size=6)


def bert(limit=512):
    tokenizer = tiny.bert()
    tokenizer.model_max_length = limit
    return tokenizer


def documents_of(lengths):
    """Documents with sentences of these lengths, in which no token occurs twice."""
    token = iter(range(1000, 1_000_000))
    return [[[next(token) for _ in range(length)] for length in sentences] for sentences in lengths]


def random_documents(count, sentences, seed=0):
    rng = random.Random(seed)
    return documents_of([[rng.randint(3, 12) for _ in range(sentences)] for _ in range(count)])


def published(documents, max_length, short, passes, rng):
    """BERT's builder, token by token, without masks: (segment A, segment B, label) in their final order."""
    documents = [[list(ids) for ids in document if ids] for document in documents]
    documents = [document for document in documents if document]
    rng.shuffle(documents)
    most = max_length - 3
    instances = []
    for _ in range(passes):
        for number, document in enumerate(documents):
            target = most
            if rng.random() < short:
                target = rng.randint(2, most)
            chunk, length, i = [], 0, 0
            while i < len(document):
                chunk.append(document[i])
                length += len(document[i])
                if i == len(document) - 1 or length >= target:
                    a_end = 1
                    if len(chunk) >= 2:
                        a_end = rng.randint(1, len(chunk) - 1)
                    a, b, label = list(chain(*chunk[:a_end])), [], 0
                    if len(chunk) == 1 or rng.random() < 0.5:
                        label = 1
                        wanted = target - len(a)
                        for _ in range(10):
                            other = rng.randint(0, len(documents) - 1)
                            if other != number:
                                break
                        start = rng.randint(0, len(documents[other]) - 1)
                        for sentence in documents[other][start:]:
                            b.extend(sentence)
                            if len(b) >= wanted:
                                break
                        i -= len(chunk) - a_end
                    else:
                        b = list(chain(*chunk[a_end:]))
                    while len(a) + len(b) > most:
                        longer = a if len(a) > len(b) else b
                        if rng.random() < 0.5:
                            del longer[0]
                        else:
                            longer.pop()
                    instances.append((a, b, label))
                    chunk, length = [], 0
                i += 1
    rng.shuffle(instances)
    return instances


def segments(examples):
    """Take the segments of BERT's examples apart."""
    for ids, types in zip(examples["input_ids"], examples["token_type_ids"], strict=True):
        middle = list(types).index(1)
        assert (ids[0], ids[middle - 1], ids[-1]) == (CLS, SEP, SEP)
        assert list(types) == [0] * middle + [1] * (len(ids) - middle)
        yield ids[1 : middle - 1].tolist(), ids[middle:-1].tolist()


@settings(deadline=None)
@given(
    lengths=LENGTHS,
    max_length=st.integers(5, 40),
    short=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    passes=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_the_published_algorithm_draw_by_draw(lengths, max_length, short, passes, seed):
    assume(any(map(any, lengths)))
    documents = documents_of(lengths)
    examples = build_next_sentence_examples(
        documents,
        bert(),
        max_length=max_length,
        short_sequence_probability=short,
        duplication_factor=passes,
        seed=seed,
    )
    expected = published(documents, max_length, short, passes, random.Random(f"{seed}:0"))
    assert list(zip(*zip(*segments(examples)), examples["next_sentence_label"])) == expected


@settings(deadline=None)
@given(lengths=LENGTHS, max_length=st.integers(5, 40), seed=st.integers(0, 99))
def test_segments_are_consecutive_tokens_of_one_document(lengths, max_length, seed):
    assume(any(map(any, lengths)))
    documents = documents_of(lengths)
    examples = build_next_sentence_examples(documents, bert(), max_length=max_length, seed=seed)
    owner = {token: row for row, sentences in enumerate(documents) for token in chain(*sentences)}
    for a, b in segments(examples):
        for side in (a, b):
            assert side == list(range(side[0], side[0] + len(side)))
            assert len({owner[token] for token in side}) == 1
    for ids, (a, b), label in zip(examples["input_ids"], segments(examples), examples["next_sentence_label"]):
        assert len(ids) <= max_length
        if label == 0:
            assert owner[a[0]] == owner[b[0]]
            assert a[-1] + 1 == b[0] or (len(ids) == max_length and a[-1] < b[0])
        elif len(set(owner.values())) > 3:
            assert owner[a[0]] != owner[b[0]]  # but once in 4 ** 10


@settings(deadline=None)
@given(lengths=LENGTHS, short=st.sampled_from([0.0, 1.0]), seed=st.integers(0, 99))
def test_sentences_that_are_not_used_are_put_back(lengths, short, seed):
    assume(any(map(any, lengths)))
    documents = documents_of(lengths)
    examples = build_next_sentence_examples(
        documents, bert(10_000), max_length=10_000, short_sequence_probability=short, seed=seed
    )
    own = [a + (b if label == 0 else []) for (a, b), label in zip(segments(examples), examples["next_sentence_label"])]
    assert sorted(chain(*own)) == list(chain(*chain(*documents)))  # nothing is cut here, so each token comes once


def test_half_of_the_labels_are_random_on_long_documents():
    documents = random_documents(200, 60)
    examples = build_next_sentence_examples(documents, bert(), max_length=50, short_sequence_probability=0)
    labels = np.array(examples["next_sentence_label"])
    assert abs(labels.mean() - 0.5) < 4 * 0.5 / np.sqrt(len(labels))
    assert len(labels) > 1500


def test_short_documents_have_random_next_segments_only():
    documents = random_documents(50, 1)
    examples = build_next_sentence_examples(documents, bert())
    assert set(examples["next_sentence_label"]) == {1}
    # One document in all: the only other one is itself.
    examples = build_next_sentence_examples(documents[:1], bert())
    assert list(segments(examples)) == [(documents[0][0], documents[0][0])]
    assert examples["next_sentence_label"] == [1]


@settings(deadline=None)
@given(lengths=LENGTHS, max_length=st.integers(4, 20), short=st.sampled_from([0.0, 0.5, 1.0]), seed=st.integers(0, 99))
def test_single_segments_are_whole_sentences_and_lose_nothing(lengths, max_length, short, seed):
    assume(any(map(any, lengths)))
    documents = documents_of(lengths)
    examples = build_next_sentence_examples(
        documents,
        bert(),
        max_length=max_length,
        short_sequence_probability=short,
        next_sentence=False,
        seed=seed,
    )
    assert set(examples) == {"input_ids", "token_type_ids"}
    contents = [ids[1:-1].tolist() for ids in examples["input_ids"]]
    assert sorted(chain(*contents)) == list(chain(*chain(*documents)))
    sentence_of = {token: sentence for sentence in chain(*documents) for token in sentence}
    owner = {token: row for row, sentences in enumerate(documents) for token in chain(*sentences)}
    for ids, content, types in zip(examples["input_ids"], contents, examples["token_type_ids"]):
        assert (ids[0], ids[-1], set(types)) == (CLS, SEP, {0})
        assert len(ids) <= max_length
        start, after = content[0], content[-1] + 1
        assert content == list(range(start, after))
        # Only a sentence that fits into no example is cut.
        assert sentence_of[start][0] == start or len(sentence_of[start]) > max_length - 2
        if short == 0 and owner.get(after) == owner[start]:
            assert len(ids) == max_length or len(ids) + len(sentence_of[after]) > max_length


@pytest.mark.parametrize("make", TOKENIZERS)
@pytest.mark.parametrize("pair", [True, False])
def test_special_tokens_and_types_are_the_tokenizers_own(make, pair):
    tokenizer, texts = make(), ["w1 w2 w3", "w4 w5"]
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
    examples = build_next_sentence_examples([[ids[0]], [ids[1]]], tokenizer, max_length=60, next_sentence=pair)
    own = tokenizer(*((texts, texts[::-1]) if pair else (texts,)))
    columns = {"input_ids", "token_type_ids"} & set(tokenizer.model_input_names)
    assert set(examples) == columns | ({"next_sentence_label"} if pair else set())
    for name in columns:
        assert sorted(row.tolist() for row in examples[name]) == sorted(own[name])


def test_the_same_seed_gives_the_same_examples_whatever_the_ids_are_kept_in():
    documents = random_documents(8, 9)
    one, two = (build_next_sentence_examples(documents, bert(), seed=seed) for seed in (1, 2))
    arrays = [[np.array(ids) for ids in document] for document in documents]
    again = build_next_sentence_examples(arrays, bert(), seed=1)
    assert list(map(list, one["input_ids"])) == list(map(list, again["input_ids"]))
    assert list(map(list, one["input_ids"])) != list(map(list, two["input_ids"]))
    assert one["input_ids"][0].dtype == np.int32
    assert one["token_type_ids"][0].dtype == np.int8
    assert hf_ftstrategies.build_next_sentence_examples is build_next_sentence_examples


@pytest.fixture(scope="module")
def rows():
    from datasets import Dataset

    return Dataset.from_dict({"sentences": random_documents(40, 12)})


def mapped(rows, **options):
    settings = {"tokenizer": bert(), "max_length": 30}
    return rows.map(
        next_sentence_examples,
        batched=True,
        batch_size=10,
        with_indices=True,
        fn_kwargs=settings,
        remove_columns=["sentences"],
        **options,
    )


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_examples_of_a_batch_follow_from_its_place(rows):
    whole = mapped(rows)[:]
    parts = [
        next_sentence_examples(rows[start : start + 10], range(start, start + 10), bert(), max_length=30)
        for start in range(0, 40, 10)
    ]
    for name, column in whole.items():
        assert column == [row if isinstance(row, int) else row.tolist() for part in parts for row in part[name]]
    assert mapped(rows, num_proc=2, load_from_cache_file=False)[:] == whole
    first = build_next_sentence_examples(rows[:10]["sentences"], bert(), max_length=30)
    assert list(map(list, first["input_ids"])) == whole["input_ids"][: len(first["input_ids"])]


def test_a_resumed_stream_goes_on_with_the_same_examples(rows):
    def examples(stream):
        return [{name: np.asarray(value).tolist() for name, value in row.items()} for row in stream]

    stream = mapped(rows.to_iterable_dataset())
    whole = mapped(rows)
    assert examples(stream) == list(whole)
    iterator = iter(stream)
    for _ in range(27):
        next(iterator)
    state = stream.state_dict()
    resumed = mapped(rows.to_iterable_dataset())
    resumed.load_state_dict(state)
    assert examples(resumed) == list(whole)[27:]


def test_a_batch_without_tokens_gives_no_examples():
    empty = next_sentence_examples({"sentences": [[], [[]]]}, [0, 1], bert())
    assert empty == {"input_ids": [], "token_type_ids": [], "next_sentence_label": []}


def test_statistics():
    from datasets import Dataset

    documents = [[[7] * 4, [8] * 6], [], [[9] * 10], [[6] * 30]]
    examples = {"input_ids": [[0] * 10, [0] * 14, [0] * 40], "next_sentence_label": [0, 1, 1]}
    expected = {
        "examples": 3,
        "tokens": 64,
        "mean_length": pytest.approx(64 / 3),
        "short_share": pytest.approx(2 / 3),
        "random_next_share": pytest.approx(2 / 3),
    }
    for columns in (examples, Dataset.from_dict(examples)):
        assert example_statistics(columns) == {**expected, "warning": None}
        found = example_statistics(columns, documents)
        assert found["warning"].startswith("67% of the documents have a single sentence, and 67% of the examples have")
        assert found["documents"] == 3
        assert found["single_sentence_share"] == pytest.approx(2 / 3)
    del examples["next_sentence_label"]
    assert example_statistics(examples, documents)["warning"] is None


def test_degenerate_labels_are_warned_of_and_good_ones_are_not():
    short, long = random_documents(60, 1), random_documents(60, 40)
    warning = example_statistics(build_next_sentence_examples(short, bert()))["warning"]
    assert warning.startswith("100% of the examples have a random second segment")
    assert "next_sentence=False" in warning
    assert example_statistics(build_next_sentence_examples(long, bert()), long)["warning"] is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: build_next_sentence_examples([], bert()), "None of the 0 documents has a token"),
        (lambda: build_next_sentence_examples([[], [[]]], bert()), "None of the 2 documents has a token"),
        (lambda: build_next_sentence_examples(["a text"], bert()), "Document 0 is 'a text': a document is a list"),
        (lambda: build_next_sentence_examples([[[5]], [5, 6]], bert()), r"Document 1 is '\[5, 6\]'"),
        (lambda: build_next_sentence_examples([[[5]], np.array([5])], bert()), "Document 1"),
        (lambda: build_next_sentence_examples([[[5]]], bert(64), max_length=65), "max_length=65 is more"),
        (lambda: build_next_sentence_examples([[[5]]], bert(), max_length=3), "adds 3 special tokens"),
        (lambda: build_next_sentence_examples([[[5]]], roberta(), max_length=5), "room for 1 token of text"),
        (lambda: build_next_sentence_examples([[[5]]], bert(), short_sequence_probability=2), "is 2: give 0 to 1"),
        (lambda: build_next_sentence_examples([[[5]]], bert(), duplication_factor=0), "is 0: give 1 or more"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
