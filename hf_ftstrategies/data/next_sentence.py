"""Documents made into the examples of BERT's further pre-training: two neighbouring segments, or one and a stranger.

Paper: Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
section 3.1 and appendix A.2; the draws are those of the authors' `create_pretraining_data.py`. Sun et al. 2019, "How
to Fine-Tune BERT for Text Classification?", section 5.4, prepare the texts of a task so.

The steps, each made for `map(batched=True)` of a `Dataset` or an `IterableDataset`: `sentence_ids`
(`data/sentences.py`), `next_sentence_examples`, and masks (`data/masking.py`).
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hf_ftstrategies.data.truncation import _content_budget, _template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TRIES = 10  # to draw another document than the one at hand
DEGENERATE = 0.5  # share of documents with a single sentence above which the labels say little
SKEWED = 0.75  # share of random next segments that goes with it

Span = tuple[int, int]  # first token, and the one after the last


def build_next_sentence_examples(
    documents: Sequence[Sequence[Sequence[int]]],
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int = 128,
    short_sequence_probability: float = 0.1,
    duplication_factor: int = 1,
    next_sentence: bool = True,
    seed: int = 12345,
) -> dict[str, list]:
    """Pack the sentences of documents into examples for next-sentence prediction, without masks.

    Documents are shuffled once. A pass over a document draws a target length, then takes whole sentences until
    they reach it: the first few of them are segment A, the others segment B, or with probability 1/2 B comes from
    another document, from a random sentence on, and the sentences not used are taken again for the next example.
    What exceeds `max_length` is dropped from the longer segment, token by token, from its front or its back. At the
    end the examples of all passes are shuffled.

    A chunk of a single sentence always gets a random B, so documents of one sentence have no label but 1:
    `example_statistics` warns of it. With one document in all there is no other one, and B comes from the document
    itself; the label is 1 all the same.

    Args:
        documents (`Sequence[Sequence[Sequence[int]]]`): The sentences of each document, as lists or arrays of
            token ids without special tokens. Empty sentences and documents are left out.
        tokenizer (`PreTrainedTokenizerBase`): Says which special tokens and token types its model expects:
            `[CLS] A [SEP] B [SEP]` for BERT, `<s> A </s></s> B </s>` for RoBERTa.
        max_length (`int`, *optional*, defaults to 128): Tokens of an example at most, special ones included.
        short_sequence_probability (`float`, *optional*, defaults to 0.1): How often the target length of a
            document is not all that fits but a number from 2 to that.
        duplication_factor (`int`, *optional*, defaults to 1): Number of passes over the documents, each with draws
            of its own; 5 in Sun et al., 10 in BERT's code.
        next_sentence (`bool`, *optional*, defaults to True): False for models pre-trained without it (RoBERTa and
            later): an example is then one segment of consecutive sentences, as many as fit the target or at least
            one; a sentence longer than `max_length` goes on in the next example.
        seed (`int`, *optional*, defaults to 12345): Of all draws.

    Returns:
        `dict[str, list]`: One entry an example: `input_ids` (int32 array), `token_type_ids` (int8 array) if the
        tokenizer's model has them, and with `next_sentence` the `next_sentence_label`: 1 if B is random, 0 if it
        follows A, as `BertForPreTraining` reads it.

    Raises:
        ValueError: No token in any document, documents that are not lists of sentences of ids, `max_length` beyond
            the tokenizer's limit or too short for two segments, a probability outside 0 to 1, no pass.

    Paper: Devlin et al. 2019, section 3.1 ("Next Sentence Prediction") and appendix A.2.
    Differs: the paper's code draws its masks in between; here they are drawn afterwards, from a generator of their
    own (`data/masking.py`). `next_sentence=False` is not in the paper; it drops no token, where the pairs are cut.
    """
    settings = _Settings(max_length, short_sequence_probability, duplication_factor, next_sentence)
    corpus = _flatten(documents)
    if not corpus.documents:
        raise ValueError(f"None of the {len(documents)} documents has a token: give sentences as lists of token ids.")
    return _build(corpus, tokenizer, settings, _generator(seed, 0))


def next_sentence_examples(
    batch: Mapping[str, Sequence],
    indices: Sequence[int],
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int = 128,
    short_sequence_probability: float = 0.1,
    duplication_factor: int = 1,
    next_sentence: bool = True,
    seed: int = 12345,
    column: str = "sentences",
) -> dict[str, list]:
    """Make a batch of documents into examples; for `map(batched=True, with_indices=True, remove_columns=...)`.

    Only the documents of the batch, `indices[0]` and the settings matter, so a stream that is resumed goes on with
    the same examples. Choose a `batch_size` of 1,000 documents or more, and leave `num_proc` away: where processes
    divide the rows they also divide batches. Building is cheap; it is `sentence_ids` that gains from processes.

    Args:
        batch (`Mapping[str, Sequence]`): Rows, with their sentences in `column`.
        indices (`Sequence[int]`): Their places in the data set.
        tokenizer (`PreTrainedTokenizerBase`), max_length (`int`), short_sequence_probability (`float`),
            duplication_factor (`int`), next_sentence (`bool`), seed (`int`): As in `build_next_sentence_examples`.
        column (`str`, *optional*, defaults to `"sentences"`): Where `sentence_ids` put the sentences.

    Returns:
        `dict[str, list]`: The columns of `build_next_sentence_examples`; of the first batch of a data set they are
        the very same.

    Raises:
        ValueError: As `build_next_sentence_examples`, except that a batch without a token gives no examples.

    Differs: in the paper's code random segments come from the whole corpus and all examples are shuffled; here both
    stay within the batch. Of a stream that data-loader workers share, each counts the rows from 0 by itself, so its
    examples depend on their number.
    """
    settings = _Settings(max_length, short_sequence_probability, duplication_factor, next_sentence)
    return _build(_flatten(batch[column]), tokenizer, settings, _generator(seed, indices[0]))


def example_statistics(
    examples: Mapping[str, Sequence], documents: Sequence[Sequence[Sequence[int]]] | None = None
) -> dict[str, Any]:
    """Count what was built, and warn where next-sentence labels say little.

    Args:
        examples (`Mapping[str, Sequence]`): The columns of `build_next_sentence_examples`, or a `Dataset` of them.
        documents (`Sequence[Sequence[Sequence[int]]]`, *optional*): What they were built from.

    Returns:
        `dict[str, Any]`: `examples`, `tokens` (special ones included), `mean_length`, `short_share` (examples of
        less than half the longest one's tokens); with next-sentence labels `random_next_share` (about 0.5 on long
        documents); with documents `documents` and `single_sentence_share`; and `warning`, a text or None.
    """
    lengths = np.array([len(ids) for ids in examples["input_ids"]])
    statistics = {
        "examples": len(lengths),
        "tokens": int(lengths.sum()),
        "mean_length": float(lengths.mean()),
        "short_share": float((lengths < lengths.max() / 2).mean()),
    }
    if documents is not None:
        sizes = np.array([sum(1 for ids in sentences if len(ids)) for sentences in documents])
        statistics["documents"] = int((sizes > 0).sum())
        statistics["single_sentence_share"] = float((sizes[sizes > 0] == 1).mean())
    labelled = "next_sentence_label" in (getattr(examples, "column_names", None) or examples)
    if labelled:
        statistics["random_next_share"] = float(np.mean(examples["next_sentence_label"]))
    return statistics | {"warning": _warning(statistics) if labelled else None}


def _warning(statistics: Mapping[str, Any]) -> str | None:
    single, random_next = statistics.get("single_sentence_share", 0.0), statistics["random_next_share"]
    if single <= DEGENERATE and random_next <= SKEWED:
        return None
    cause = f"{single:.0%} of the documents have a single sentence, and " if single > DEGENERATE else ""
    return (
        f"{cause}{random_next:.0%} of the examples have a random second segment (half of them on long documents), so "
        "next-sentence prediction has little to learn. Turn it off (next_sentence=False), or use longer documents."
    )


@dataclass(frozen=True)
class _Settings:
    max_length: int
    short_sequence_probability: float
    duplication_factor: int
    next_sentence: bool

    def __post_init__(self):
        if not 0 <= self.short_sequence_probability <= 1:
            raise ValueError(f"short_sequence_probability is {self.short_sequence_probability}: give 0 to 1.")
        if self.duplication_factor < 1:
            raise ValueError(f"duplication_factor is {self.duplication_factor}: give 1 or more passes.")


@dataclass(frozen=True)
class _Corpus:
    """All sentences in one flat array."""

    ids: np.ndarray  # (tokens,)
    starts: list[int]  # sentence s is ids[starts[s] : starts[s + 1]]
    documents: list[Span]  # the sentences of each document: the first, and the one after the last

    def tokens(self, first: int, stop: int) -> Span:
        """Where the tokens of some consecutive sentences are."""
        return self.starts[first], self.starts[stop]


def _flatten(documents: Sequence[Sequence[Sequence[int]]]) -> _Corpus:
    sentences, bounds = [], [0]
    for row, document in enumerate(documents):
        if isinstance(document, str) or any(isinstance(ids, (str, int, np.integer)) for ids in document):
            raise ValueError(
                f"Document {row} is {str(document)[:60]!r}: a document is a list of sentences, a sentence a list of "
                "token ids (sentence_ids makes them from texts)."
            )
        sentences += [ids for ids in document if len(ids)]
        if len(sentences) > bounds[-1]:
            bounds.append(len(sentences))
    ids = np.concatenate([np.zeros(0, np.int32), *(np.asarray(ids, np.int32) for ids in sentences)])
    starts = np.cumsum([0, *map(len, sentences)]).tolist()
    return _Corpus(ids, starts, list(pairwise(bounds)))


def _generator(seed: int, first_index: int) -> random.Random:
    return random.Random(f"{seed}:{first_index}")


def _build(
    corpus: _Corpus, tokenizer: PreTrainedTokenizerBase, settings: _Settings, rng: random.Random
) -> dict[str, list]:
    template = _template(tokenizer, pair=settings.next_sentence)
    budget = _content_budget(tokenizer, template, settings.max_length)
    if budget < 2:
        raise ValueError(f"max_length={settings.max_length} leaves room for {budget} token of text: give more.")
    rng.shuffle(corpus.documents)
    draw = _draw_pairs if settings.next_sentence else _draw_segments
    drawn = [
        example
        for _ in range(settings.duplication_factor)
        for place in range(len(corpus.documents))
        for example in draw(corpus, place, budget, settings.short_sequence_probability, rng)
    ]
    rng.shuffle(drawn)

    gaps = [np.array(ids, np.int32) for ids in template.special]
    columns = {"input_ids": [_fill(gaps, [corpus.ids[slice(*side)] for side in sides]) for sides, _ in drawn]}
    if template.types is not None:
        type_gaps = [np.array(types, np.int8) for types in template.types[0]]
        types = [np.full(budget, kind, np.int8) for kind in template.types[1]]
        columns["token_type_ids"] = [
            _fill(type_gaps, [kinds[: stop - start] for kinds, (start, stop) in zip(types, sides)])
            for sides, _ in drawn
        ]
    if settings.next_sentence:
        columns["next_sentence_label"] = [label for _, label in drawn]
    return columns


def _fill(gaps: Sequence[np.ndarray], sides: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([gaps[0], *(part for pair in zip(sides, gaps[1:]) for part in pair)])


def _draw_target(budget: int, short_sequence_probability: float, rng: random.Random) -> int:
    return rng.randint(2, budget) if rng.random() < short_sequence_probability else budget


def _draw_pairs(
    corpus: _Corpus, place: int, budget: int, short_sequence_probability: float, rng: random.Random
) -> Iterator[tuple[tuple[Span, Span], int]]:
    """One pass over a document: the two segments of each example, and whether the second is random."""
    target = _draw_target(budget, short_sequence_probability, rng)
    begin, last = corpus.documents[place]
    while begin < last:
        end = _reach(corpus, begin, last, target)
        split = begin + (rng.randint(1, end - begin - 1) if end - begin >= 2 else 1)
        first = corpus.tokens(begin, split)
        is_random = end - begin == 1 or rng.random() < 0.5
        if is_random:
            second = _draw_random_next(corpus, place, target - (first[1] - first[0]), rng)
            begin = split  # the sentences that are not used are put back
        else:
            second = corpus.tokens(split, end)
            begin = end
        yield _cut(first, second, budget, rng), int(is_random)


def _draw_random_next(corpus: _Corpus, place: int, wanted: int, rng: random.Random) -> Span:
    for _ in range(TRIES):
        other = rng.randint(0, len(corpus.documents) - 1)
        if other != place:
            break
    begin, last = corpus.documents[other]
    begin = rng.randint(begin, last - 1)
    return corpus.tokens(begin, _reach(corpus, begin, last, wanted))


def _reach(corpus: _Corpus, begin: int, last: int, wanted: int) -> int:
    """The end of the fewest sentences, one at least, that have the wanted number of tokens, or of the document."""
    return bisect_left(corpus.starts, corpus.starts[begin] + wanted, begin + 1, last)


def _cut(first: Span, second: Span, budget: int, rng: random.Random) -> tuple[Span, Span]:
    sides = [list(first), list(second)]
    sizes = [stop - start for start, stop in sides]
    while sum(sizes) > budget:
        longer = 0 if sizes[0] > sizes[1] else 1
        sizes[longer] -= 1
        if rng.random() < 0.5:
            sides[longer][0] += 1
        else:
            sides[longer][1] -= 1
    return tuple(sides[0]), tuple(sides[1])


def _draw_segments(
    corpus: _Corpus, place: int, budget: int, short_sequence_probability: float, rng: random.Random
) -> Iterator[tuple[tuple[Span], None]]:
    """One pass over a document without pairs: every token of it is in one example."""
    target = _draw_target(budget, short_sequence_probability, rng)
    begin, last = corpus.documents[place]
    start, stop = corpus.tokens(begin, last)
    while start < stop:
        beyond = bisect_right(corpus.starts, start + target, begin, last + 1)
        whole = corpus.starts[beyond - 1]
        end = whole if whole > start else min(corpus.starts[beyond], start + budget)
        yield ((start, end),), None
        start = end
