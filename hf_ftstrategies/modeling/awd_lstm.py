"""AWD-LSTM, the language model of ULMFiT, and ULMFiT's classifier, as Transformers models.

Imports nothing of this package but `awd_lstm_config.py`, `awd_lstm_layers.py` and `heads.py` beside it: these files are
saved with every model, which loads with `trust_remote_code=True` where the package is not installed. With the package,
`import hf_ftstrategies` teaches the Auto classes to load it.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PreTrainedModel,
)
from transformers import initialization as init
from transformers.modeling_outputs import ModelOutput, SequenceClassifierOutput
from transformers.utils import can_return_tuple

from .awd_lstm_config import AwdLstmConfig
from .awd_lstm_layers import ConcatPoolingHead, LockedDropout, WeightDropLSTM, WordDropout, padding_last, reorder
from .heads import pool_tokens

States = tuple[tuple[torch.Tensor, torch.Tensor], ...]


@dataclass
class AwdLstmModelOutput(ModelOutput):
    """What an [`AwdLstmModel`] returns.

    Args:
        last_hidden_state (`torch.Tensor`): (B, T, embedding size), states of the last layer without dropout. What
            stands at padding has no meaning.
        states (`tuple[tuple[torch.Tensor, torch.Tensor], ...]`): h and c of each layer after the last real token, (B,
            size of the layer) each. With their gradients: who carries them on detaches them.
    """

    last_hidden_state: torch.Tensor | None = None
    states: States | None = None


@dataclass
class AwdLstmCausalLMOutput(ModelOutput):
    """What an [`AwdLstmForCausalLM`] returns.

    Args:
        loss (`torch.Tensor`, *optional*): With labels.
        logits (`torch.Tensor`): (B, T, vocabulary).
        states (`tuple[tuple[torch.Tensor, torch.Tensor], ...]`): As of [`AwdLstmModelOutput`].
    """

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    states: States | None = None


class AwdLstmPreTrainedModel(PreTrainedModel):
    """What the AWD-LSTMs share: the initial weights.

    Paper: Merity et al. 2018, section 5: embeddings uniform in [-0.1, 0.1], an LSTM of H states in [-1/√H, 1/√H]. The
    classifier's linear layers by their inputs, as the scripts of Howard & Ruder leave them to torch.
    """

    config_class = AwdLstmConfig
    base_model_prefix = "encoder"

    def __init__(self, config: AwdLstmConfig):
        super().__init__(config)
        config.check()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Embedding):
            init.uniform_(module.weight, -0.1, 0.1)
        elif isinstance(module, (nn.LSTM, nn.Linear)):
            bound = (module.hidden_size if isinstance(module, nn.LSTM) else module.in_features) ** -0.5
            for parameter in module.parameters(recurse=False):
                init.uniform_(parameter, -bound, bound)
        else:
            super()._init_weights(module)


class AwdLstmModel(AwdLstmPreTrainedModel):
    """Embeddings and LSTM layers with the dropouts of AWD-LSTM.

    Args:
        config (`AwdLstmConfig`): Sizes and dropouts.

    Paper: Merity et al. 2018, sections 2 and 4; Howard & Ruder 2018, section 3.1.

    Differs: padding is not read, on whichever side it stands.
    """

    def __init__(self, config: AwdLstmConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)
        self.embedding_dropout = WordDropout(config.embedding_dropout)
        self.input_dropout = LockedDropout(config.input_dropout)
        self.hidden_dropout = LockedDropout(config.hidden_dropout)
        between = [config.hidden_size] * (config.num_hidden_layers - 1)
        sizes = [config.embedding_size, *between, config.embedding_size]
        self.layers = nn.ModuleList(
            WeightDropLSTM(below, above, config.weight_dropout) for below, above in pairwise(sizes)
        )
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        states: States | None = None,
    ) -> AwdLstmModelOutput:
        """Read B sequences on from their states.

        Args:
            input_ids (`torch.Tensor`): (B, T) token ids.
            attention_mask (`torch.Tensor`, *optional*): (B, T), 0 at padding, wherever it is; none if None.
            inputs_embeds (`torch.Tensor`, *optional*): (B, T, embedding size) instead of `input_ids`; without
                embedding dropout, which needs to know the words.
            states (`tuple[tuple[torch.Tensor, torch.Tensor], ...]`, *optional*): As a call before returned them; zeros
                if None.

        Raises:
            ValueError: Both or none of `input_ids` and `inputs_embeds`.
        """
        x = _one_of(input_ids, inputs_embeds)
        if inputs_embeds is None:
            x = self.embedding_dropout(self.embed_tokens(x), x, self.embed_tokens.num_embeddings)
        x = self.input_dropout(x)
        order, lengths = None, torch.full(x.shape[:1], x.shape[1])
        if attention_mask is not None:
            order, lengths = padding_last(attention_mask.bool()), attention_mask.bool().sum(1).cpu()
            x = reorder(x, order)
        after = []
        for index, layer in enumerate(self.layers):
            x = x if index == 0 else self.hidden_dropout(x)
            x, state = layer(x, lengths, states and states[index])
            after.append(state)
        x = x if order is None else reorder(x, order.argsort(1))
        return AwdLstmModelOutput(last_hidden_state=x, states=tuple(after))


def _one_of(input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> torch.Tensor:
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("Give either input_ids or inputs_embeds, one and not both.")
    return inputs_embeds if input_ids is None else input_ids


class AwdLstmForCausalLM(AwdLstmPreTrainedModel):
    """The language model: an [`AwdLstmModel`] and a decoder that shares the matrix of the embeddings.

    In training, the loss has two terms beside the cross entropy: `ar_alpha` times the mean square of the last layer's
    states after dropout (AR), and `tar_beta` times that of the steps from one token's states to the next one's, before
    dropout (TAR). The loss of an evaluation is the cross entropy alone, so that its exponential is the perplexity.

    Args:
        config (`AwdLstmConfig`): Sizes and dropouts.

    Paper: Merity et al. 2018, sections 4.4 (tied weights) and 4.6 (AR, TAR); Howard & Ruder 2018, section 3.1.

    Differs: the decoder has a bias, as that of Merity et al., which Howard & Ruder's scripts leave out; these take AR
    of the states before dropout. Means leave out padding.
    """

    _tied_weights_keys = {"lm_head.weight": "encoder.embed_tokens.weight"}  # noqa: RUF012  (as above)
    accepts_loss_kwargs = True  # num_items_in_batch

    def __init__(self, config: AwdLstmConfig):
        super().__init__(config)
        self.encoder = AwdLstmModel(config)
        self.output_dropout = LockedDropout(config.output_dropout)
        self.lm_head = nn.Linear(config.embedding_size, config.vocab_size)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            init.uniform_(module.weight, -0.1, 0.1)
            init.zeros_(module.bias)
        else:
            super()._init_weights(module)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        states: States | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> AwdLstmCausalLMOutput:
        """Predict the token after each.

        Args:
            input_ids (`torch.Tensor`), attention_mask, inputs_embeds, states: As of [`AwdLstmModel`]. To read a long
                text in pieces, pass on the `states` of the last one, detached: gradients would go back through all.
            token_type_ids (`torch.Tensor`, *optional*): Ignored; some tokenizers return them.
            labels (`torch.Tensor`, *optional*): (B, T), the same as `input_ids`, -100 where there is no loss. They are
                shifted here: nothing predicts the first.
            num_items_in_batch (`torch.Tensor` or `int`, *optional*): Labels of the whole step, if this is a part of it
                (gradient accumulation, several processes): the loss is then this part's share of the step's mean.

        Returns:
            [`AwdLstmCausalLMOutput`].
        """
        outputs = self.encoder(input_ids, attention_mask, inputs_embeds, states)
        raw = outputs.last_hidden_state
        dropped = self.output_dropout(raw)
        logits = self.lm_head(dropped)
        loss = None
        if labels is not None:
            if attention_mask is not None:  # what padding on the left says of the first word means nothing
                labels = torch.where(F.pad(attention_mask[:, :-1], (1, 0)) == 0, -100, labels)
            size = {"vocab_size": logits.shape[-1], "num_items_in_batch": num_items_in_batch}
            loss = self.loss_function(logits, labels, **size)
            if self.training:
                share = 1 if num_items_in_batch is None else (labels[:, 1:] != -100).sum() / num_items_in_batch
                loss = loss + share * self._regularization(raw, dropped, attention_mask)
        return AwdLstmCausalLMOutput(loss=loss, logits=logits, states=outputs.states)

    def _regularization(self, raw: torch.Tensor, dropped: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        mask = raw.new_ones(raw.shape[:2], dtype=torch.bool) if mask is None else mask.bool()
        steps = (raw[:, 1:] - raw[:, :-1])[mask[:, 1:] & mask[:, :-1]]
        activation, change = (x.float().pow(2).sum() / max(1, x.numel()) for x in (dropped[mask], steps))
        return self.config.ar_alpha * activation + self.config.tar_beta * change


class AwdLstmForSequenceClassification(AwdLstmPreTrainedModel):
    """ULMFiT's classifier: it reads a text in pieces, and pools the states of the last layer.

    A piece has `bptt` tokens, the first one the rest. The states go on from piece to piece, the gradients do not
    (BPT3C). Of the last `max_tokens` tokens of a text, the last state, the maximum and the mean of all go to the head.
    Pieces before them are read too, but without gradients.

    ```python
    AwdLstmForCausalLM(config).save_pretrained("lm")  # trained, one hopes
    model = AwdLstmForSequenceClassification.from_pretrained("lm", num_labels=6)  # its encoder, and a new head
    ```

    Args:
        config (`AwdLstmConfig`): Sizes, dropouts, `bptt`, `max_tokens`, `num_labels`.

    Paper: Howard & Ruder 2018, section 3.3.

    Differs: pieces are counted from the end of a text, not from the beginning of the longest of its batch, and padding
    is neither read nor pooled, so that no text depends on the others but through the batch norms. Exactly `max_tokens`
    tokens are pooled, the scripts pool the whole pieces among them. No AR and TAR, which the scripts have here too and
    the paper has not. As in the scripts, each piece draws new dropout masks, and `output_dropout` is the language
    model's alone.
    """

    accepts_loss_kwargs = False  # the loss is a mean over the batch, Trainer must not take it for scaled

    def __init__(self, config: AwdLstmConfig):
        super().__init__(config)
        self.encoder = AwdLstmModel(config)
        dropouts = (config.pooled_dropout, config.classifier_dropout)
        self.classifier = ConcatPoolingHead(3 * config.embedding_size, config.head_size, config.num_labels, dropouts)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """Classify B texts.

        Args:
            input_ids (`torch.Tensor`): (B, T) token ids.
            attention_mask (`torch.Tensor`, *optional*): (B, T), 0 at padding, wherever it is. If None, `pad_token_id`
                is padding.
            token_type_ids (`torch.Tensor`, *optional*): Ignored; some tokenizers return them.
            inputs_embeds (`torch.Tensor`, *optional*): (B, T, embedding size) instead of `input_ids`.
            labels (`torch.Tensor`, *optional*): (B,) classes, (B, num_labels) floats for several labels, (B,) or
                (B, num_labels) floats for regression.

        Returns:
            `SequenceClassifierOutput`: `logits`, (B, num_labels), and with labels `loss`, as in Transformers'
            sequence classifiers: by `config.problem_type`, which the first labels settle if it is None.

        Raises:
            ValueError: A training batch of one text, which has no variance to be normalised by; a text without tokens.
        """
        tokens = _one_of(input_ids, inputs_embeds)
        if self.classifier.training and len(tokens) == 1:
            raise ValueError(
                "The training batch has one text, but its head normalises by batch: give 2 or more, and set "
                "dataloader_drop_last=True if the last batch of an epoch has one."
            )
        mask = self._mask(input_ids, tokens, attention_mask)
        logits = self.classifier(pool_tokens(*self._read(tokens, mask), "concat"))
        loss = None if labels is None else self.loss_function(labels, logits, self.config)
        return SequenceClassifierOutput(loss=loss, logits=logits)

    def _mask(
        self, input_ids: torch.Tensor | None, tokens: torch.Tensor, attention_mask: torch.Tensor | None
    ) -> torch.Tensor:
        if attention_mask is not None:
            mask = attention_mask.bool()
        elif input_ids is not None and self.config.pad_token_id is not None:
            mask = input_ids != self.config.pad_token_id
        else:
            mask = tokens.new_ones(tokens.shape[:2], dtype=torch.bool)
        if not mask.any(1).all():
            row = int(mask.any(1).int().argmin())
            raise ValueError(f"Text {row} of the batch (from 0) has no token: leave empty texts out.")
        return mask

    def _read(self, tokens: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """States of the last layer, and where they are those of the last `max_tokens` tokens of a text."""
        bptt, kept, longest = self.config.bptt, self.config.max_tokens, int(mask.sum(1).max())
        order = mask.int().argsort(dim=1, stable=True)[:, -longest:]  # padding first, so that texts end together
        tokens, mask = reorder(tokens, order), reorder(mask, order)
        name = "input_ids" if tokens.dim() == 2 else "inputs_embeds"
        states, read = None, []
        for end in range((longest - 1) % bptt + 1, longest + 1, bptt):
            piece, pooled = slice(max(0, end - bptt), end), end > longest - kept
            with torch.set_grad_enabled(torch.is_grad_enabled() and pooled):
                outputs = self.encoder(**{name: tokens[:, piece]}, attention_mask=mask[:, piece], states=states)
            states = tuple((h.detach(), c.detach()) for h, c in outputs.states)
            if pooled:
                read.append(outputs.last_hidden_state)
        return torch.cat(read, dim=1)[:, -kept:], mask[:, -kept:]


AwdLstmModel.register_for_auto_class("AutoModel")
AwdLstmForCausalLM.register_for_auto_class("AutoModelForCausalLM")
AwdLstmForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")
if __name__.startswith("hf_ftstrategies."):  # the copy in a saved folder is found by the folder's auto_map
    AutoConfig.register(AwdLstmConfig.model_type, AwdLstmConfig)
    AutoModel.register(AwdLstmConfig, AwdLstmModel)
    AutoModelForCausalLM.register(AwdLstmConfig, AwdLstmForCausalLM)
    AutoModelForSequenceClassification.register(AwdLstmConfig, AwdLstmForSequenceClassification)
