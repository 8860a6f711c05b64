import json

import pytest
import torch
from transformers import CanineConfig, CanineForSequenceClassification, PreTrainedTokenizerFast

from hf_ftstrategies import EncoderClassifier
from hf_ftstrategies.modeling.loading import check_fit, count_positions, explain_load_error
from tests.data.tiny import bert, canine
from tests.modeling.architectures import TINY_MODELS, tiny_model
from tests.tiny import tiny_bert

LEARNED = {"bert": 64, "roberta": 63, "xlm_roberta": 63, "electra": 64, "distilbert": 64, "albert": 64, "mpnet": 62}
LEARNED |= {"gpt2": 64}


def forward(model, length):
    return model(torch.full((1, length), 5)).logits


@pytest.mark.parametrize("name", TINY_MODELS)
def test_positions_are_those_that_the_model_can_read(name):
    """One text as long as that goes through, one token more does not; without a table any length does."""
    model = tiny_model(name).eval()
    assert count_positions(model) == LEARNED.get(name)
    assert forward(model, LEARNED.get(name, 150)).isfinite().all()
    if name in LEARNED:
        with pytest.raises((IndexError, RuntimeError)):
            forward(model, LEARNED[name] + 1)


def test_positions_of_an_encoder_in_our_classifier(tmp_path):
    tiny_bert().save_pretrained(tmp_path)
    assert count_positions(EncoderClassifier.from_encoder(str(tmp_path), num_labels=2)) == 32


def test_what_fits():
    model, tokenizer = tiny_bert(vocab_size=104), bert()
    check_fit(model, tokenizer, 32)
    check_fit(tiny_bert(vocab_size=128), tokenizer, 32)  # padded to a multiple of 64
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    check_fit(CanineForSequenceClassification(CanineConfig(**sizes, max_position_embeddings=64)), canine(), 64)


def without_padding():
    tokenizer = bert()
    tokenizer.pad_token = None
    return tokenizer


def without_words():
    from tokenizers import Tokenizer, models

    backend = Tokenizer(models.WordLevel({"[UNK]": 0, "[PAD]": 1}, unk_token="[UNK]"))
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]")


@pytest.mark.parametrize(
    ("tokenizer", "length", "message"),
    [
        (bert, 33, "max_length is 33, but the model has 32 positions"),
        (without_padding, 8, "has no padding token: set tokenizer.pad_token"),
        (without_words, 8, "has no vocabulary"),
    ],
)
def test_what_does_not_fit(tokenizer, length, message):
    with pytest.raises(ValueError, match=message):
        check_fit(tiny_bert(vocab_size=104), tokenizer(), length)


def test_added_tokens_need_embeddings():
    tokenizer = bert()
    tokenizer.add_tokens(["new"])
    model = tiny_bert(vocab_size=104)
    with pytest.raises(ValueError, match=r"105 tokens, the model embeds 104.*resize_token_embeddings"):
        check_fit(model, tokenizer, 8)
    model.resize_token_embeddings(105)
    check_fit(model, tokenizer, 8)


@pytest.mark.parametrize(
    ("error", "explained"),
    [
        (OSError("No file.\nLong advice."), "No file."),
        (OSError(), ""),
        (ValueError("one\n  two"), "one two"),
        (ValueError("Please pass `trust_remote_code=True`"), "it brings code of its own, which is not run"),
        (RuntimeError("You set `ignore_mismatched_sizes` to `False`"), "its weights have other shapes"),
        (json.JSONDecodeError("Expecting value", "x", 0), "its JSON files are damaged"),
        (KeyError("gelu2"), "KeyError: 'gelu2'"),
        (RuntimeError("x " * 1000), "[...]"),
    ],
)
def test_errors_become_one_short_line(error, explained):
    text = explain_load_error(error)
    assert explained in text
    assert "\n" not in text
    assert len(text) < 350
