"""From names of data sets to masked examples of further pre-training, made beforehand or while it trains."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedTokenizerBase

from hf_ftstrategies.data.corpora import CorpusPart, load_corpus
from hf_ftstrategies.data.corpus_stream import CorpusStream, ExampleStream
from hf_ftstrategies.data.info import DatasetInfo
from hf_ftstrategies.data.masking import MaskedExamples, mask_examples
from hf_ftstrategies.data.next_sentence import example_statistics, next_sentence_examples
from hf_ftstrategies.data.sentences import sentence_ids
from hf_ftstrategies.pipeline.arguments import RunArguments
from hf_ftstrategies.pipeline.fine_tuning import load_splits
from hf_ftstrategies.pipeline.pretraining_arguments import PretrainingArguments

if TYPE_CHECKING:
    from datasets import Dataset

DOCUMENTS = 50_000  # that random next segments come from; all of them are in memory at once


@dataclass(frozen=True)
class Texts:
    """Where the texts come from.

    Args:
        names (`tuple[str, ...]`): Data sets.
        splits (`dict[str, list[str]]`): Of each.
        text_columns (`dict`): Of the user's own data.
        held_out (`str`): The split of the fine-tuning set that measures it in the end.
        without (`list[str]`): Its texts, which are left out; none if it is to be transductive.
    """

    names: tuple[str, ...]
    splits: dict[str, list[str]]
    text_columns: dict[str, tuple[str | None, str | None]]
    held_out: str
    without: list[str]


@dataclass(frozen=True)
class Examples:
    """Masked examples.

    Args:
        train (`Dataset`, `MaskedExamples` or `ExampleStream`): To train on.
        validation (`Dataset`): Of the held-out documents, with fixed masks.
        statistics (`dict`): Of `example_statistics`.
        corpus (`CorpusStream` or `list[CorpusPart]`): What the corpus is made of.
    """

    train: Dataset | MaskedExamples | ExampleStream
    validation: Dataset
    statistics: dict[str, Any]
    corpus: CorpusStream | list[CorpusPart]

    @property
    def parts(self) -> list[CorpusPart]:
        """What each data set gave; of a stream, so far."""
        return self.corpus.parts if isinstance(self.corpus, CorpusStream) else self.corpus


def find_texts(names: tuple[str, ...], run: RunArguments, options: PretrainingArguments) -> Texts:
    """Decide which splits are read, and which texts must not be.

    Args:
        names (`tuple[str, ...]`): Of `corpus_names`.
        run (`RunArguments`): Of the fine-tuning.
        options (`PretrainingArguments`): `unlabelled` and `transductive`.

    Raises:
        ValueError: there is no unlabelled split.
    """
    rows, info, _ = load_splits(run)
    held_out = "test" if "test" in rows else "validation"
    own = ["train"]
    if options.unlabelled:
        more = [split for split in info.unlabelled if not split.startswith("test")]
        if not more:
            raise ValueError(f"unlabelled is set, but {info.source} has no unlabelled split besides test.")
        own += more
    if options.transductive and held_out in info.rows:
        own.append(held_out)
    return Texts(
        names,
        splits={name: own if name == run.dataset else ["train"] for name in names},
        text_columns={run.dataset: (run.text_column, run.text_pair_column)},
        held_out=held_out,
        without=[] if options.transductive else _texts(rows[held_out], info),
    )


def _texts(rows: Dataset, info: DatasetInfo) -> list[str]:
    return [" ".join(texts) for texts in zip(*(rows[column] for column in info.text_columns), strict=True)]


def make_examples(
    texts: Texts,
    tokenizer: PreTrainedTokenizerBase,
    run: RunArguments,
    options: PretrainingArguments,
    next_sentence: bool,
) -> Examples:
    """Make all examples before the training; `datasets` caches every step on disk.

    Args:
        texts (`Texts`): Of `find_texts`.
        tokenizer (`PreTrainedTokenizerBase`): Of the model.
        run (`RunArguments`), options (`PretrainingArguments`): As given.
        next_sentence (`bool`): Pairs of segments, or single ones.
    """
    documents, parts = load_corpus(
        texts.names,
        data_root=run.data_root,
        splits=texts.splits,
        text_columns=texts.text_columns,
        without=texts.without,
        rows=options.corpus_rows,
        seed=run.split_seed,
    )
    held_out = max(1, min(options.held_out_documents, len(documents) // 10))
    divided = documents.train_test_split(test_size=held_out, seed=run.split_seed)
    how, shape, masks = _settings(tokenizer, options, next_sentence)
    sentences = divided.map(sentence_ids, batched=True, remove_columns=["text"], fn_kwargs=how, desc="split sentences")
    train = _build(sentences["train"], shape | {"duplication_factor": options.duplication_factor})
    statistics = example_statistics(train, sentences["train"]["sentences"])
    validation = _mask(_build(sentences["test"], shape), masks)
    train = MaskedExamples(train, **masks) if options.masking == "dynamic" else _mask(train, masks)
    return Examples(train, validation, {**statistics, "held_out_examples": len(validation)}, parts)


def make_streamed_examples(
    texts: Texts,
    tokenizer: PreTrainedTokenizerBase,
    run: RunArguments,
    options: PretrainingArguments,
    next_sentence: bool,
) -> Examples:
    """As `make_examples`, but the training examples are made while it trains; masks are new in every pass.

    The first `held_out_documents` documents are held out, and the statistics are of the 1,000 after them.
    """
    from datasets import Dataset

    corpus = CorpusStream(
        texts.names,
        data_root=run.data_root,
        splits=texts.splits,
        text_columns=texts.text_columns,
        without=texts.without,
        rows=options.corpus_rows,
    )
    how, shape, masks = _settings(tokenizer, options, next_sentence)
    held_out = options.held_out_documents
    first = list(islice(corpus.documents(), held_out + 1_000))
    if len(first) <= held_out:
        raise ValueError(
            f"The corpus has {len(first):,} documents, and held_out_documents is {held_out:,}: hold out fewer."
        )
    validation = _mask(_build(Dataset.from_dict(sentence_ids({"text": first[:held_out]}, **how)), shape), masks)
    make = partial(_make, how=how, shape=shape | {"duplication_factor": options.duplication_factor})
    sample = make(first[held_out:], 0)
    statistics = example_statistics(sample, sentence_ids({"text": first[held_out:]}, **how)["sentences"])
    length = options.pretraining_steps * options.pretraining_batch_size
    train = ExampleStream(corpus, make, partial(_mask_batch, masks=masks), length, skip=held_out, seed=run.split_seed)
    statistics |= {"held_out_examples": len(validation), "of_the_first_documents": len(first) - held_out}
    return Examples(train, validation, statistics, corpus)


def _settings(tokenizer: PreTrainedTokenizerBase, options: PretrainingArguments, next_sentence: bool):
    """Arguments of `sentence_ids`, `next_sentence_examples` and `mask_examples`."""
    how = {"tokenizer": tokenizer, "language": options.corpus_language, "spacy_model": options.spacy_model}
    shape = {
        "tokenizer": tokenizer,
        "max_length": options.pretraining_max_length,
        "short_sequence_probability": options.short_sequence_probability,
        "next_sentence": next_sentence,
    }
    masks = {
        "tokenizer": tokenizer,
        "max_predictions": options.max_predictions,
        "whole_words": options.whole_word_masking,
    }
    return how, shape, masks


def _build(sentences: Dataset, shape: dict[str, Any]) -> Dataset:
    return sentences.map(
        next_sentence_examples,
        batched=True,
        batch_size=DOCUMENTS,
        with_indices=True,
        remove_columns=sentences.column_names,
        fn_kwargs=shape,
        desc="make examples",
    )


def _mask(examples: Dataset, masks: dict[str, Any]) -> Dataset:
    return examples.map(mask_examples, batched=True, with_indices=True, fn_kwargs=masks, desc="mask tokens")


def _make(documents: list[str], first: int, how: dict[str, Any], shape: dict[str, Any]) -> dict[str, list]:
    return next_sentence_examples(sentence_ids({"text": documents}, **how), [first], **shape)


def _mask_batch(examples: dict[str, list], first: int, masks: dict[str, Any]) -> dict[str, list]:
    return mask_examples(examples, range(first, first + len(examples["input_ids"])), **masks)
