"""A Transformers pipeline that reads texts as the training did: cut at the same places, or in chunks.

This file goes into the folder of a saved model, so that it works without the package: it imports Transformers alone.

    from transformers import pipeline
    classify = pipeline("text-classification", "user/name", trust_remote_code=True)       # a model with own code
    classify = pipeline("long-text-classification", "user/name", trust_remote_code=True)  # a stock model

Stock models keep their stock `"text-classification"`, which runs no code of ours and, with `truncation=True`, reads the
beginning of a text (or its end, where the training did).
"""

import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TextClassificationPipeline


class AsTrainedPipeline(TextClassificationPipeline):
    """Text classification with the reading of the training, `config.reading`.

    That is a `dict` of `max_length` (tokens of a sequence, special ones included), `limit` (content tokens above which
    a text is cut; None = never), `front` and `back` (those that are then kept), and of models with chunks `chunk_step`
    (from one chunk to the next). Pairs are cut by the tokenizer, longest first. The chunks of a text are a batch, so
    texts go one by one.
    """

    def __call__(self, inputs, **kwargs):
        """As of `TextClassificationPipeline`."""
        if "chunk_step" in self.model.config.reading:
            kwargs["batch_size"] = 1
        return super().__call__(inputs, **kwargs)

    def preprocess(self, inputs, **tokenizer_kwargs) -> dict[str, torch.Tensor]:
        """Tokens of one text, in one sequence or in chunks."""
        reading = self.model.config.reading
        if not isinstance(inputs, str):
            return super().preprocess(inputs, truncation=True, max_length=reading["max_length"])
        content = self.tokenizer(inputs, add_special_tokens=False, verbose=False)["input_ids"]
        whole = self.tokenizer(inputs, verbose=False)
        start = _start_of(content, whole["input_ids"])
        before, after = whole["input_ids"][:start], whole["input_ids"][start + len(content) :]
        size = reading["max_length"] - len(before) - len(after)
        kept = content
        if reading["limit"] is not None and len(content) > reading["limit"]:
            kept = content[: reading["front"]] + content[len(content) - reading["back"] :]
        step = reading.get("chunk_step", max(1, len(kept)))
        starts = range(0, max(len(kept) - (size - step if "chunk_step" in reading else 0), 1), step)
        sequences = [[*before, *kept[i : i + size], *after] for i in starts]
        rows = {"input_ids": sequences}
        if "token_type_ids" in whole:
            rows["token_type_ids"] = [[whole["token_type_ids"][0]] * len(row) for row in sequences]
        batch = dict(self.tokenizer.pad(rows, return_tensors="pt"))
        return {"chunk_counts": torch.tensor([len(sequences)]), **batch} if "chunk_step" in reading else batch


def _start_of(content: list[int], whole: list[int]) -> int:
    """Where the content begins among the special tokens."""
    found = (i for i in range(len(whole) + 1) if whole[i : i + len(content)] == content)
    return next(found) if content else len(whole)


def keep_reading(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, reading: dict[str, Any], folder: str | Path
) -> None:
    """Before model and tokenizer are saved, note how the training read its texts, and put this file beside them.

    Args:
        model (`PreTrainedModel`), tokenizer (`PreTrainedTokenizerBase`): That are saved next.
        reading (`dict`): As `data.chunking.describe_reading` gives it.
        folder (`str` or `Path`): Where they are saved.
    """
    tokenizer.truncation_side = "left" if reading["front"] == 0 else "right"
    has_code = model.is_remote_code()  # needs to be trusted anyway
    impl = {"impl": f"{Path(__file__).stem}.{AsTrainedPipeline.__name__}", "pt": ["AutoModelForSequenceClassification"]}
    model.config.reading = reading
    model.config.custom_pipelines = {"text-classification" if has_code else "long-text-classification": impl}
    Path(folder).mkdir(parents=True, exist_ok=True)
    shutil.copy(__file__, folder)
