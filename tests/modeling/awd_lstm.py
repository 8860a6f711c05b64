"""Tiny AWD-LSTMs, texts and a tokenizer for them."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hf_ftstrategies import AwdLstmConfig
from tests.tiny import LABELS, VOCAB

SIZES = {
    "vocab_size": VOCAB,
    "embedding_size": 6,
    "hidden_size": 7,
    "bptt": 3,
    "max_tokens": 8,
    "head_size": 5,
    "pad_token_id": 0,
    "num_labels": LABELS,
}
DROPOUTS = ("output", "hidden", "input", "embedding", "weight", "pooled", "classifier")
NO_DROPOUT = {f"{name}_dropout": 0.0 for name in DROPOUTS}
LENGTHS = (11, 1, 4, 8)


def tiny(cls, seed=0, **settings):
    """In double precision and evaluation mode, with weights large enough that all shows."""
    torch.manual_seed(seed)
    model = cls(AwdLstmConfig(**{**SIZES, **settings})).double().eval()
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, std=0.3 if "weight_hh" in name else 0.6)
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_()
    return model


def texts():
    torch.manual_seed(1)
    return [torch.randint(1, VOCAB, (length,)) for length in LENGTHS]


def batch(side="right"):
    """The texts, padded by word 7, which also occurs in texts, to two more tokens than the longest has."""
    ids, mask = torch.full((len(LENGTHS), 13), 7), torch.zeros(len(LENGTHS), 13, dtype=torch.long)
    for row, text in enumerate(texts()):
        places = {"right": slice(0, len(text)), "left": slice(13 - len(text), 13), "scattered": slice(0, None)}[side]
        if side == "scattered":
            places = torch.randperm(13, generator=torch.Generator().manual_seed(row))[: len(text)].sort().values
        ids[row, places], mask[row, places] = text, 1
    return {"input_ids": ids, "attention_mask": mask}


def word_tokenizer():
    words = {word: index for index, word in enumerate(["[PAD]", "[UNK]", *(f"w{i}" for i in range(VOCAB - 2))])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
