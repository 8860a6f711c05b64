"""Tiny random models of the supported architectures, built from configs without network."""

from collections.abc import Callable
from functools import partial

import torch
from transformers import (
    AlbertConfig,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoModelForSequenceClassification,
    BertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    GPT2Config,
    LlamaConfig,
    ModernBertConfig,
    MPNetConfig,
    PreTrainedConfig,
    PreTrainedModel,
    RobertaConfig,
    XLMRobertaConfig,
    XLNetConfig,
)

PAD = 0
SPECIAL = {"pad_token_id": PAD, "bos_token_id": 1, "eos_token_id": 2}
COMMON = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_labels": 3,
    **SPECIAL,
}
BERT = {**COMMON, "intermediate_size": 64, "max_position_embeddings": 64}

TINY_CONFIGS: dict[str, Callable[[], PreTrainedConfig]] = {
    "bert": partial(BertConfig, **BERT),
    "roberta": partial(RobertaConfig, **BERT),
    "xlm_roberta": partial(XLMRobertaConfig, **BERT),
    "electra": partial(ElectraConfig, embedding_size=16, **BERT),
    "distilbert": partial(
        DistilBertConfig,
        vocab_size=100,
        dim=32,
        n_layers=3,
        n_heads=2,
        hidden_dim=64,
        max_position_embeddings=64,
        num_labels=3,
        pad_token_id=PAD,
    ),
    "albert": partial(AlbertConfig, embedding_size=16, **BERT),
    # As microsoft/deberta-v3-*: relative positions, normalised, shared with the content projections.
    "deberta_v2": partial(
        DebertaV2Config,
        relative_attention=True,
        position_buckets=16,
        pos_att_type=["c2p", "p2c"],
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        position_biased_input=False,
        type_vocab_size=0,
        **BERT,
    ),
    "mpnet": partial(MPNetConfig, **BERT),
    "modernbert": partial(ModernBertConfig, cls_token_id=1, sep_token_id=2, local_attention=8, **BERT),
    "xlnet": partial(XLNetConfig, vocab_size=100, d_model=32, n_layer=3, n_head=2, d_inner=64, num_labels=3, **SPECIAL),
    "gpt2": partial(
        GPT2Config, vocab_size=100, n_embd=32, n_layer=3, n_head=2, n_positions=64, num_labels=3, **SPECIAL
    ),
    "llama": partial(LlamaConfig, num_key_value_heads=2, **BERT),
}


def tiny_model(name: str) -> PreTrainedModel:
    """A sequence classifier: 3 layers, hidden 32, 100 words, 3 labels; weights follow torch's seed."""
    return AutoModelForSequenceClassification.from_config(TINY_CONFIGS[name]())


TINY_MODELS: dict[str, Callable[[], PreTrainedModel]] = {name: partial(tiny_model, name) for name in TINY_CONFIGS}


def tiny_inputs(batch: int = 4, length: int = 10, vocab: int = 100) -> dict[str, torch.Tensor]:
    """Random ids with a mask and labels; every second row is two tokens shorter, padded on the right."""
    input_ids = torch.randint(3, vocab, (batch, length))
    attention_mask = torch.ones_like(input_ids)
    attention_mask[1::2, -2:] = 0
    return {
        "input_ids": input_ids.masked_fill(attention_mask == 0, PAD),
        "attention_mask": attention_mask,
        "labels": torch.arange(batch) % 3,
    }


# Those that are pre-trained by predicting masked words.
MASKED_LANGUAGE_MODELS = [
    "bert", "roberta", "xlm_roberta", "electra", "distilbert", "albert", "deberta_v2", "mpnet", "modernbert",
]  # fmt: skip


def tiny_pretraining_model(name: str, dtype: torch.dtype = torch.float64, **settings) -> PreTrainedModel:
    """BERT with both heads, the others with their masked language model, in evaluation mode; no weight is 0 or 1."""
    torch.manual_seed(0)
    auto_class = AutoModelForPreTraining if name == "bert" else AutoModelForMaskedLM
    model = auto_class.from_config(TINY_CONFIGS[name](**settings)).to(dtype).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model
