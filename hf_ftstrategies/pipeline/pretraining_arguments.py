"""How to pre-train further before fine-tuning; fields of a recipe beside those of the run."""

from __future__ import annotations

from dataclasses import dataclass, field


def _option(default, help: str):
    return field(default=default, metadata={"help": help})


@dataclass
class PretrainingArguments:
    """Further pre-training of a run. With `further_pretraining="none"` nothing else here is looked at.

    Args:
        further_pretraining (`str`, *optional*, defaults to `"none"`): `"none"`, `"within_task"` (ITPT),
            `"in_domain"` (IDPT), `"cross_domain"` (CDPT), or names and paths of data sets separated by commas.
        unlabelled (`bool`, *optional*, defaults to `False`): Also the unlabelled split of the fine-tuning set.
        transductive (`bool`, *optional*, defaults to `False`): Also the texts of its test split; report and card
            say so. Without it no text that stands in the test split gets in.
        corpus_rows (`int`, *optional*): Documents of each data set at most, drawn by `split_seed`.
        corpus_streaming (`bool`, *optional*, defaults to `False`): Read the texts while training, for corpora larger
            than memory or disk; random next segments then come from 1,000 documents at a time.
        corpus_language (`str`, *optional*, defaults to `"en"`): `"en"`, `"zh"` or `"ko"`: how sentences end.
        spacy_model (`str`, *optional*): Installed spaCy model that splits sentences instead of its rules.
        next_sentence (`bool`, *optional*): Next sentence prediction; None = where the architecture has it.
        masking (`str`, *optional*, defaults to `"static"`): `"static"`: drawn when the examples are made, anew
            in each duplicate; `"dynamic"`: drawn anew in each epoch.
        whole_word_masking (`bool`, *optional*, defaults to `False`): Mask all pieces of a word together.
        duplication_factor (`int`, *optional*, defaults to 5): Passes over the documents that make examples.
        short_sequence_probability (`float`, *optional*, defaults to 0.1): Share of shorter examples.
        max_predictions (`int`, *optional*, defaults to 20): Masked tokens of an example at most (15 % of it).
        pretraining_max_length (`int`, *optional*, defaults to 128): Tokens of an example.
        pretraining_steps (`int`, *optional*, defaults to 100,000): Optimizer steps.
        pretraining_warmup_steps (`float`, *optional*, defaults to 10,000): Steps, or a fraction of them below 1.
        pretraining_batch_size (`int`, *optional*, defaults to 32): Examples per step over all processes.
        pretraining_device_batch_size (`int`, *optional*, defaults to 32): What fits on a device at most.
        pretraining_learning_rate (`float`, *optional*, defaults to 5e-5): Peak rate.
        pretraining_bias_correction (`bool`, *optional*, defaults to `True`): False = BERTAdam, whose updates are
            three to six times larger during the first hundreds of steps, which can destroy the encoder.
        pretraining_save_steps (`int`, *optional*): Steps between checkpoints and held-out evaluations; None =
            a tenth of the steps.
        held_out_documents (`int`, *optional*, defaults to 500): Documents kept for measuring (a tenth at most).
        fine_tune_at (`str`, *optional*): Steps of the pre-training from which to fine-tune as well as from its
            end, such as `"10k,20k,50k"` (figure 3 of the paper).

    Raises:
        ValueError: a value that makes no sense.

    Paper: Sun et al. 2019, section 5.1 (batch 32, length 128, 5e-5, 100,000 steps, 10,000 of warm-up) and 5.4.

    Differs: Adam is bias-corrected, BERT's is not. With the paper's warm-up the two hardly differ; with a short one
    they do (Zhang et al. 2021, section 4).
    """

    further_pretraining: str = _option(
        "none", "none, within_task, in_domain, cross_domain, or data sets separated by commas (Sun et al. 2019)."
    )
    unlabelled: bool = _option(False, "Pre-train on the unlabelled split too.")
    transductive: bool = _option(False, "Pre-train on the texts of the test split too; stated in report and card.")
    corpus_rows: int | None = _option(None, "Documents of each data set at most; empty = all.")
    corpus_streaming: bool = _option(False, "Read the texts while training, for corpora larger than memory.")
    corpus_language: str = _option("en", "en, zh or ko: how sentences end.")
    spacy_model: str | None = _option(None, "Installed spaCy model that splits sentences; empty = rules.")
    next_sentence: bool | None = _option(None, "Next sentence prediction; empty = where the architecture has it.")
    masking: str = _option("static", "static (Devlin et al. 2018) or dynamic (anew in each epoch).")
    whole_word_masking: bool = _option(False, "Mask all pieces of a word together.")
    duplication_factor: int = _option(5, "Passes over the documents that make examples.")
    short_sequence_probability: float = _option(0.1, "Share of shorter examples.")
    max_predictions: int = _option(20, "Masked tokens of an example at most.")
    pretraining_max_length: int = _option(128, "Tokens of an example, special ones included.")
    pretraining_steps: int = _option(100_000, "Optimizer steps of the further pre-training.")
    pretraining_warmup_steps: float = _option(10_000, "Its warm-up: steps, or a fraction of them below 1.")
    pretraining_batch_size: int = _option(32, "Its examples per step over all processes.")
    pretraining_device_batch_size: int = _option(32, "What of it fits on a device at most.")
    pretraining_learning_rate: float = _option(5e-5, "Its peak learning rate.")
    pretraining_bias_correction: bool = _option(True, "False = BERTAdam, as in BERT's code; for long warm-ups.")
    pretraining_save_steps: int | None = _option(None, "Steps between its checkpoints; empty = a tenth.")
    held_out_documents: int = _option(500, "Documents kept for measuring it, a tenth at most.")
    fine_tune_at: str | None = _option(None, "Fine-tune from these of its steps too, such as 10k,20k,50k.")

    def __post_init__(self):
        positive = (
            "corpus_rows", "duplication_factor", "max_predictions", "pretraining_steps", "pretraining_batch_size",
            "pretraining_device_batch_size", "pretraining_learning_rate", "pretraining_save_steps",
        )  # fmt: skip
        for name in positive:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} is {value}: give a number above 0.")
        if self.masking not in ("static", "dynamic"):
            raise ValueError(f"masking is {self.masking!r}, known are static and dynamic.")
        _ = self.starting_points

    @property
    def is_on(self) -> bool:
        """Whether there is any further pre-training."""
        return self.further_pretraining != "none"

    def describe(self) -> str:
        """The stage in one line, for the plan."""
        texts = self.further_pretraining + ", with the unlabelled split" * self.unlabelled
        leak = ", TRANSDUCTIVE: with the texts of the test split" * self.transductive
        return (
            f"further pre-training first: {self.pretraining_steps:,} steps of {self.pretraining_batch_size} examples "
            f"of {self.pretraining_max_length} tokens, {texts}{leak}"
        )

    @property
    def save_steps(self) -> int:
        """Steps between checkpoints."""
        return self.pretraining_save_steps or max(1, self.pretraining_steps // 10)

    @property
    def starting_points(self) -> tuple[int, ...]:
        """Steps of the pre-training from which fine-tuning starts, in order; the last is its end."""
        given = [] if self.fine_tune_at is None else self.fine_tune_at.split(",")
        try:
            steps = [round(float(step.strip().lower().replace("k", "e3"))) for step in given]
        except ValueError:
            raise ValueError(f"fine_tune_at is {self.fine_tune_at!r}: give steps such as 10k,20k,50k.") from None
        wrong = [step for step in steps if not 0 < step <= self.pretraining_steps]
        if wrong:
            raise ValueError(f"fine_tune_at holds {wrong[0]}, outside the {self.pretraining_steps} pre-training steps.")
        return tuple(sorted({*steps, self.pretraining_steps}))
