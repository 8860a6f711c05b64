"""Configuration of an AWD-LSTM.

Imports nothing of this package: the file is saved beside models (`trust_remote_code`).
"""

from dataclasses import fields
from difflib import get_close_matches

from transformers import PreTrainedConfig


class AwdLstmConfig(PreTrainedConfig):
    """Sizes, dropouts and reading of an AWD-LSTM. The defaults are ULMFiT's.

    Args:
        vocab_size (`int`, *optional*, defaults to 30002): Words, those for unknown ones and padding included.
        embedding_size (`int`, *optional*, defaults to 400): Of words, and of the states of the last layer.
        hidden_size (`int`, *optional*, defaults to 1150): States of the layers below the last.
        num_hidden_layers (`int`, *optional*, defaults to 3): LSTM layers.
        output_dropout (`float`, *optional*, defaults to 0.4): Of the last layer's states, before the decoder of the
            language model; the classifier has dropouts of its own.
        hidden_dropout (`float`, *optional*, defaults to 0.3): Of the states between the layers.
        input_dropout (`float`, *optional*, defaults to 0.4): Of the embeddings, by feature.
        embedding_dropout (`float`, *optional*, defaults to 0.05): Of the embeddings, by word.
        weight_dropout (`float`, *optional*, defaults to 0.5): Of the hidden-to-hidden matrices.
        ar_alpha (`float`, *optional*, defaults to 2.0): Factor of the activation regularisation.
        tar_beta (`float`, *optional*, defaults to 1.0): Factor of the temporal activation regularisation.
        bptt (`int`, *optional*, defaults to 70): Tokens of a piece, through which gradients flow.
        max_tokens (`int`, *optional*, defaults to 1400): Tokens that the classifier pools, at the end of a text.
        head_size (`int`, *optional*, defaults to 50): Hidden units of the classifier's head.
        pooled_dropout (`float`, *optional*, defaults to 0.4): Of the pooled states, in the head.
        classifier_dropout (`float`, *optional*, defaults to 0.1): Of the head's hidden units.
        pad_token_id (`int`, *optional*, defaults to 1): Padding, for the classifier without an attention mask.
        tie_word_embeddings (`bool`, *optional*, defaults to `True`): The decoder's matrix is the embeddings'.
        **kwargs: As of every Transformers configuration: `num_labels`, `id2label`, `label2id`, `problem_type`.

    Raises:
        ValueError: A size below 1, a dropout outside [0, 1), a negative factor, a padding token outside the
            vocabulary; a name that looks like a misspelt setting.

    Paper: Howard & Ruder 2018, sections 3.3 and 4.1 (sizes, dropouts, `bptt`), their scripts (`vocab_size`, `ar_alpha`,
    `tar_beta`, `max_tokens`, the head's dropouts); Merity et al. 2018.
    """

    model_type = "awd_lstm"
    keys_to_ignore_at_inference = ["states"]  # noqa: RUF012  (a class variable of Transformers)

    vocab_size: int = 30002
    embedding_size: int = 400
    hidden_size: int = 1150
    num_hidden_layers: int = 3
    output_dropout: float = 0.4
    hidden_dropout: float = 0.3
    input_dropout: float = 0.4
    embedding_dropout: float = 0.05
    weight_dropout: float = 0.5
    ar_alpha: float = 2.0
    tar_beta: float = 1.0
    bptt: int = 70
    max_tokens: int = 1400
    head_size: int = 50
    pooled_dropout: float = 0.4
    classifier_dropout: float = 0.1
    pad_token_id: int | None = 1
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs):
        own = [field.name for field in fields(type(self))]
        for name in kwargs:
            if near := get_close_matches(name, own, n=1, cutoff=0.85):
                raise ValueError(f"An AWD-LSTM has no setting {name!r}. Did you mean {near[0]!r}?")
        self.check()
        super().__post_init__(**kwargs)

    def check(self) -> None:
        """Check the settings.

        Raises:
            ValueError: As the class.
        """
        sizes = ("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "bptt", "max_tokens", "head_size")
        for name in sizes:
            _check(self, name, getattr(self, name) >= 1, "1 or more")
        for name in (field.name for field in fields(type(self)) if field.name.endswith("_dropout")):
            _check(self, name, 0 <= getattr(self, name) < 1, "a share from 0 to below 1")
        for name in ("ar_alpha", "tar_beta"):
            _check(self, name, 0 <= getattr(self, name) < float("inf"), "a factor of the loss, 0 to leave it out")
        inside = self.pad_token_id is None or 0 <= self.pad_token_id < self.vocab_size
        _check(self, "pad_token_id", inside, f"one of the {self.vocab_size} words, or None")


def _check(config: AwdLstmConfig, name: str, fits: bool, instead: str) -> None:
    if not fits:
        raise ValueError(f"{name} is {getattr(config, name)}: give {instead}.")


AwdLstmConfig.register_for_auto_class()
