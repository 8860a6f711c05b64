"""A classifier on any encoder: which layers, tokens and chunks it reads, and through which head.

Imports nothing of this package but `heads.py` beside it: both files are saved with every model, which loads with
`trust_remote_code=True` where the package is not installed. With the package, `import hf_ftstrategies` teaches the Auto
classes to load it.
"""

import copy
import inspect
from collections.abc import Collection, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

from .heads import BiLSTMSelfAttention, Pooling, pad_by_text, pool_tokens

CHOICES = {
    "layer_pooling": ("concat", "mean", "max", "attention"),
    "token_pooling": ("cls", "mean", "max", "concat"),
    "chunk_pooling": ("none", "mean", "max", "attention"),
    "head": ("linear", "mlp", "bilstm"),
}


class EncoderClassifierConfig(PreTrainedConfig):
    """What an [`EncoderClassifier`] reads of its encoder, and its head.

    Args:
        text_config (`PreTrainedConfig` or `dict`, *optional*): Configuration of the encoder; BERT's if None. A
            copy is kept, without the blocks above the highest layer that is read: they need not run, and would
            be parameters without a gradient.
        layers (`str`, `int` or `list[int]`, *optional*, defaults to `"last"`): The layers to read: `"last"`,
            `"first4"`, `"last4"`, `"all"`, or indices of blocks, 0 (the lowest) to L - 1. The output of the
            highest block that is kept goes through the encoder's final norm, where it has one (ModernBERT).
        layer_pooling (`str`, *optional*, defaults to `"concat"`): How several layers become one vector:
            `"concat"`, `"mean"`, `"max"` or `"attention"`. Without effect on one layer.
        token_pooling (`str`, *optional*, defaults to `"cls"`): How the tokens of a layer become one vector, before
            the layers are combined: `"cls"` (the first token, raw), `"mean"`, `"max"` or `"concat"` (last token,
            maximum and mean), padding left out. `head="bilstm"` reads all tokens: leave it at `"cls"` there.
        chunk_pooling (`str`, *optional*, defaults to `"none"`): How the vectors of a text's chunks become one:
            `"none"` (a text is one chunk), `"mean"`, `"max"` or `"attention"`.
        head (`str`, *optional*, defaults to `"linear"`): `"linear"`; `"mlp"`: one hidden layer of the encoder's
            size with ReLU; `"bilstm"`: BiLSTM and self-attention over the tokens of each chunk, then linear.
        classifier_dropout (`float`, *optional*, defaults to 0.1): Before each linear layer of the head.
        attention_size (`int`, *optional*, defaults to 128): Hidden units of every attention.
        lstm_size (`int`, *optional*, defaults to 300): States of each direction of the BiLSTM.
        attention_hops (`int`, *optional*, defaults to 30): Attention vectors of the BiLSTM head.
        **kwargs: As of every Transformers configuration: `num_labels`, `id2label`, `label2id`, `problem_type`.

    Raises:
        ValueError: A value that is not known, with the nearest that is; a name that looks like a misspelt setting;
            layers that the encoder does not have; an encoder without one stack of layers.

    Paper: Sun et al. 2019, sections 5.3.2 (chunks) and 5.3.3 (layers, counted from 0 as in table 3), and BERT-Feat;
    Howard & Ruder 2018, section 3.3 (`token_pooling="concat"`); Lin et al. 2017 (`head="bilstm"`).

    Differs: one `attention_size` for all attentions, from Sun et al.'s code; Lin et al. have 350 in theirs.
    """

    model_type = "encoder_classifier"
    sub_configs = {"text_config": AutoConfig}  # noqa: RUF012  (a class variable of Transformers)

    text_config: PreTrainedConfig | dict | None = None
    layers: str | int | list[int] = "last"
    layer_pooling: str = "concat"
    token_pooling: str = "cls"
    chunk_pooling: str = "none"
    head: str = "linear"
    classifier_dropout: float = 0.1
    attention_size: int = 128
    lstm_size: int = 300
    attention_hops: int = 30

    def __post_init__(self, **kwargs):
        own = [field.name for field in fields(type(self))]
        for name in kwargs:
            if get_close_matches(name, own, n=1, cutoff=0.85):
                raise ValueError(f"EncoderClassifier has no setting {name!r}.{_did_you_mean(name, own)}")
        if isinstance(self.text_config, PreTrainedConfig):
            self.text_config = copy.deepcopy(self.text_config)
        else:
            self.text_config = AutoConfig.for_model(**{"model_type": "bert", **(self.text_config or {})})
        self.settle()
        super().__post_init__(**kwargs)

    def settle(self) -> None:
        """Check the settings, and cut the blocks above the highest layer that is read.

        Raises:
            ValueError: As the class.
        """
        for name, known in CHOICES.items():
            value = getattr(self, name)
            if value not in known:
                raise ValueError(f"{name} is {value!r}.{_did_you_mean(value, known)} Known: {', '.join(known)}.")
        for name in ("attention_size", "lstm_size", "attention_hops"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: give 1 or more.")
        if not 0 <= self.classifier_dropout < 1:
            raise ValueError(f"classifier_dropout is {self.classifier_dropout}: give a share from 0 to below 1.")
        if self.head == "bilstm" and self.token_pooling != "cls":
            raise ValueError(
                f"token_pooling is {self.token_pooling!r}, but head='bilstm' reads all tokens and pools them itself: "
                "leave token_pooling out."
            )
        self._cut_blocks()

    def _cut_blocks(self) -> None:
        encoder = self.text_config
        if encoder.is_encoder_decoder or not hasattr(encoder, "num_hidden_layers"):
            raise ValueError(
                f"The encoder is of type {encoder.model_type!r}, which has no single stack of layers over a text: "
                "use an encoder such as BERT."
            )
        if isinstance(self.layers, Sequence) and not isinstance(self.layers, str):
            self.layers = list(self.layers)  # as JSON gives it back
        kept = max(select_blocks(self.layers, encoder.num_hidden_layers)) + 1
        if getattr(encoder, "num_hidden_groups", 1) > 1:
            return  # ALBERT's groups of layers depend on the number of layers
        encoder.num_hidden_layers = kept
        if getattr(encoder, "layer_types", None):
            encoder.layer_types = encoder.layer_types[:kept]


def select_blocks(layers: str | int | Sequence[int], num_blocks: int) -> list[int]:
    """The indices of the blocks whose outputs are read.

    Args:
        layers (`str`, `int` or `Sequence[int]`): As in [`EncoderClassifierConfig`].
        num_blocks (`int`): Blocks of the encoder.

    Returns:
        `list[int]`: From 0 to `num_blocks - 1`, in the order given.

    Raises:
        ValueError: Unknown name, blocks that are not there, an index twice, none at all.
    """
    named = {
        "last": range(num_blocks - 1, num_blocks),
        "first4": range(4),
        "last4": range(num_blocks - 4, num_blocks),
        "all": range(num_blocks),
    }
    if isinstance(layers, str):
        blocks = list(named.get(layers, ()))
    else:
        blocks = list(layers) if isinstance(layers, Sequence) else [layers]
    possible = all(type(block) is int and 0 <= block < num_blocks for block in blocks)
    if not blocks or not possible or len(set(blocks)) < len(blocks):
        raise ValueError(
            f"layers is {layers!r}, the encoder has {num_blocks} blocks.{_did_you_mean(layers, named)} Give "
            f"{', '.join(map(repr, named))}, or one or several of the indices 0 to {num_blocks - 1}."
        )
    return blocks


def _did_you_mean(word: Any, known: Collection[str]) -> str:
    nearest = get_close_matches(str(word), known, n=1)
    return f" Did you mean {nearest[0]!r}?" if nearest and nearest[0] != word else ""


class EncoderClassifier(PreTrainedModel):
    """An encoder, the pooling of its layers, tokens and chunks, and a head; see [`EncoderClassifierConfig`].

    The raw hidden states are pooled: an encoder's own pooler (dense and tanh on [CLS]) is not used, and dropped.

    ```python
    model = EncoderClassifier.from_encoder("bert-base-uncased", chunk_pooling="attention", num_labels=2)
    trainer = StrategyTrainer(model, args, train_dataset=rows, data_collator=ChunkCollator(tokenizer))
    ```

    Args:
        config (`EncoderClassifierConfig`): Settings.
        encoder (`PreTrainedModel`, *optional*): Made from `config.text_config`; a new one with random weights if
            None. [`EncoderClassifier.from_encoder`] passes a pre-trained one.

    Paper: As [`EncoderClassifierConfig`].
    """

    config_class = EncoderClassifierConfig
    base_model_prefix = "encoder"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = False  # the loss is a mean over the batch, Trainer must not take it for scaled
    # What the encoder itself does not support, it refuses.
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = _supports_attention_backend = True

    def __init__(self, config: EncoderClassifierConfig, encoder: PreTrainedModel | None = None):
        super().__init__(config)
        config.settle()
        self.loss_type = "ForSequenceClassification"
        self.encoder = AutoModel.from_config(config.text_config) if encoder is None else encoder
        if getattr(self.encoder, "pooler", None) is not None:
            self.encoder.pooler = None
        self._reads_token_types = "token_type_ids" in inspect.signature(self.encoder.forward).parameters
        self._blocks = select_blocks(config.layers, config.text_config.num_hidden_layers)

        count, size = self.feature_shape
        self.layer_pooling = Pooling(config.layer_pooling if count > 1 else "concat", size, config.attention_size)
        size *= count if config.layer_pooling == "concat" else 1
        self.bilstm = None
        if config.head == "bilstm":
            self.bilstm = BiLSTMSelfAttention(size, config.lstm_size, config.attention_size, config.attention_hops)
            size = 2 * config.lstm_size * config.attention_hops
        self.chunk_pooling = None
        if config.chunk_pooling != "none":
            self.chunk_pooling = Pooling(config.chunk_pooling, size, config.attention_size)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = self._make_classifier(size)
        self.post_init()

    def _make_classifier(self, size: int) -> nn.Module:
        if self.config.head != "mlp":
            return nn.Linear(size, self.config.num_labels)
        hidden = self.config.text_config.hidden_size
        dropout = nn.Dropout(self.config.classifier_dropout)
        return nn.Sequential(nn.Linear(size, hidden), nn.ReLU(), dropout, nn.Linear(hidden, self.config.num_labels))

    @classmethod
    def from_encoder(cls, name_or_path: str, trust_remote_code: bool = False, **settings: Any) -> "EncoderClassifier":
        """Start from a pre-trained encoder, with a new head.

        Args:
            name_or_path (`str`): Hub id or folder of any model that `AutoModel` loads; its own head is left out.
            trust_remote_code (`bool`, *optional*, defaults to `False`): Run code that comes with the encoder.
            **settings: Of [`EncoderClassifierConfig`], such as `layers`, `num_labels` or `id2label`.

        Returns:
            `EncoderClassifier`: In evaluation mode, in the type of the encoder's weights; the head follows torch's
            seed.

        Raises:
            ValueError: As [`EncoderClassifierConfig`], and for a setting that is not known.
            OSError: There is no such model.
        """
        known = [
            *(field.name for field in fields(EncoderClassifierConfig) if field.name != "text_config"),
            "num_labels",
        ]
        for name in settings:
            if name not in known:
                raise ValueError(f"EncoderClassifier has no setting {name!r}.{_did_you_mean(name, known)}")
        encoder_config = AutoConfig.from_pretrained(name_or_path, trust_remote_code=trust_remote_code)
        config = EncoderClassifierConfig(text_config=encoder_config, name_or_path=name_or_path, **settings)
        encoder = AutoModel.from_pretrained(
            name_or_path, config=config.text_config, trust_remote_code=trust_remote_code
        )
        config.text_config.name_or_path = ""  # would be saved with the model, also where it is a local folder
        return cls(config, encoder).to(encoder.dtype).eval()

    def _init_weights(self, module: nn.Module) -> None:
        # Transformers asks for the head's modules; whoever re-initialises blocks asks for the encoder's.
        inside = any(module is own for own in self.encoder.modules())
        return self.encoder._init_weights(module) if inside else super()._init_weights(module)

    def get_input_embeddings(self) -> nn.Module:
        """The encoder's."""
        return self.encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """The encoder's."""
        self.encoder.set_input_embeddings(value)

    @property
    def feature_shape(self) -> tuple[int, int]:
        """Number of layers that are read, and size of what is read of each."""
        parts = 3 if self.config.token_pooling == "concat" else 1
        return len(self._blocks), parts * self.config.text_config.hidden_size

    def encode(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the encoder, and read of it what the head needs. No parameter outside the encoder takes part.

        Args:
            As of `forward`, of N sequences.

        Returns:
            `tuple[torch.Tensor, torch.Tensor]`: The features, (N, tokens, *`feature_shape`), and their mask,
            (N, tokens). Tokens are those of the input with `head="bilstm"`, otherwise one, the pooled.
        """
        if self._reads_token_types and token_type_ids is not None:
            kwargs["token_type_ids"] = token_type_ids
        only_top = self._blocks == [self.config.text_config.num_hidden_layers - 1]
        outputs = self.encoder(
            input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=not only_top, **kwargs
        )
        top = outputs.last_hidden_state
        # hidden_states[0] are the embeddings
        layers = [top] if only_top else [outputs.hidden_states[block + 1] for block in self._blocks]
        mask = top.new_ones(top.shape[:2], dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        if self.bilstm is not None:
            return torch.stack(layers, dim=2), mask
        pooled = [pool_tokens(layer, mask, self.config.token_pooling) for layer in layers]
        return torch.stack(pooled, dim=1).unsqueeze(1), mask.any(1, keepdim=True)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        features: torch.Tensor | None = None,
        chunk_counts: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Classify B texts of N chunks in all (without chunks, N = B).

        Args:
            input_ids (`torch.Tensor`): (N, T) token ids.
            attention_mask (`torch.Tensor`, *optional*): (N, T), 0 at padding, on either side.
            token_type_ids (`torch.Tensor`, *optional*): (N, T); ignored by encoders without token types.
            inputs_embeds (`torch.Tensor`, *optional*): (N, T, hidden) instead of `input_ids`.
            features (`torch.Tensor`, *optional*): What `encode` returned before, instead of all above but
                `attention_mask`, which is then its mask; the encoder does not run.
            chunk_counts (`torch.Tensor`, *optional*): (B,) chunks of each text, those of a text as neighbours, as
                `ChunkCollator` makes them. One each if None.
            labels (`torch.Tensor`, *optional*): (B,) classes, (B, num_labels) floats for several labels, (B,) or
                (B, num_labels) floats for regression.
            **kwargs: To the encoder.

        Returns:
            `SequenceClassifierOutput`: `logits`, (B, num_labels), and with labels `loss`, as in Transformers'
            sequence classifiers: by `config.problem_type`, which the first labels settle if it is None.

        Raises:
            ValueError: `chunk_counts` that do not add up to N, or that this model does not pool.
        """
        if features is None:
            given = {"input_ids": input_ids, "inputs_embeds": inputs_embeds, "token_type_ids": token_type_ids}
            features, mask = self.encode(attention_mask=attention_mask, **given, **kwargs)
        else:
            features = features.to(self.dtype)
            mask = features.new_ones(features.shape[:2]) if attention_mask is None else attention_mask
            mask = mask.bool()
        x = self.layer_pooling(features, mask.new_ones(features.shape[:3]))
        x = x.squeeze(1) if self.bilstm is None else self.bilstm(x, mask)
        logits = self.classifier(self.dropout(self._pool_chunks(x, chunk_counts)))
        loss = None if labels is None else self.loss_function(labels, logits, self.config)
        return SequenceClassifierOutput(loss=loss, logits=logits)

    def _pool_chunks(self, x: torch.Tensor, counts: torch.Tensor | None) -> torch.Tensor:
        if self.chunk_pooling is None:
            if counts is not None:
                raise ValueError("The batch has chunk_counts, but chunk_pooling is 'none': set mean, max or attention.")
            return x
        if counts is None:
            counts = torch.ones(len(x), dtype=torch.long, device=x.device)
        if int(counts.sum()) != len(x):
            raise ValueError(
                f"The batch has {len(x)} chunks, chunk_counts adds up to {int(counts.sum())}. DataParallel and "
                "accelerate's dispatch_batches split a batch by rows, which does not work for chunks: start one "
                "process for each GPU, and set dispatch_batches to False."
            )
        return self.chunk_pooling(*pad_by_text(x, counts))


EncoderClassifierConfig.register_for_auto_class()
EncoderClassifier.register_for_auto_class("AutoModelForSequenceClassification")
if __name__.startswith("hf_ftstrategies."):  # the copy in a saved folder is found by the folder's auto_map
    AutoConfig.register(EncoderClassifierConfig.model_type, EncoderClassifierConfig)
    AutoModelForSequenceClassification.register(EncoderClassifierConfig, EncoderClassifier)
