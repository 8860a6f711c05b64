"""BERT-Feat: the encoder stays frozen, so its features are computed once, and only the head trains on them.

Paper: Sun et al. 2019, "How to Fine-Tune BERT for Text Classification?", table 6 (BERT-Feat): the features of BERT
as input of a BiLSTM with self-attention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils.rnn import pad_sequence

from hf_ftstrategies.modeling.classifier import EncoderClassifier

if TYPE_CHECKING:
    from datasets import Dataset

_INPUTS = ("input_ids", "token_type_ids", "attention_mask")


def compute_features(
    model: EncoderClassifier,
    dataset: Dataset,
    data_collator: Callable[[Sequence[dict[str, Any]]], dict[str, torch.Tensor]],
    *,
    batch_size: int = 32,
) -> Dataset:
    """Replace the token ids of a data set by what the model's frozen encoder makes of them.

    ```python
    model = EncoderClassifier.from_encoder("bert-base-uncased", head="bilstm", num_labels=2)
    model.encoder.requires_grad_(False)
    rows = compute_features(model, rows, DataCollatorWithPadding(tokenizer))
    StrategyTrainer(model, args, train_dataset=rows, data_collator=collate_features).train()
    ```

    The features are those of the encoder in evaluation mode, before anything that trains. The result is cached on
    disk by `datasets`, under the encoder's weights, what is read of them, and the rows: a model with another head
    on the same features reads it again. With `head="bilstm"` it holds every token (4 * hidden bytes each, for each
    layer), otherwise one vector for each chunk and layer.

    Args:
        model (`EncoderClassifier`): Its device is used; unchanged.
        dataset (`Dataset`): Rows of `encode_batch` or `encode_chunks`.
        data_collator (`Callable`): `DataCollatorWithPadding` or `ChunkCollator`, as for training on the rows.
        batch_size (`int`, *optional*, defaults to 32): Rows for one run of the encoder.

    Returns:
        `Dataset`: The rows, with `features` (all tokens of a row, layers, size), float32, and `attention_mask`
        (a list of ones for each chunk) instead of the token ids, in torch format. For `collate_features`.

    Raises:
        ValueError: No `input_ids` in the data set.

    Paper: Sun et al. 2019, table 6.
    """
    import datasets
    from datasets import Array3D, Features, Sequence, Value
    from datasets.fingerprint import Hasher

    if "input_ids" not in dataset.column_names:
        raise ValueError(f"The data set has no input_ids, only {', '.join(dataset.column_names)}: tokenise it first.")
    names = [name for name in _INPUTS if name in dataset.column_names]
    columns = Features({name: kind for name, kind in dataset.features.items() if name not in names})
    columns["features"] = Array3D((None, *model.feature_shape), "float32")
    columns["attention_mask"] = Sequence(Sequence(Value("int8")))
    config = model.config
    settings = (config.layers, config.token_pooling, model.bilstm is None, config.text_config.to_json_string())
    weights = {name: tensor.float().cpu().numpy() for name, tensor in model.encoder.state_dict().items()}

    fingerprint = Hasher.hash((dataset._fingerprint, names, settings, weights))
    folder = Path(datasets.config.HF_DATASETS_CACHE, "features")  # for rows in memory, which have no cache of theirs
    folder.mkdir(parents=True, exist_ok=True)
    training = model.training
    model.eval()
    try:
        return dataset.map(
            lambda *values: _features(model, data_collator, dict(zip(names, values, strict=True))),
            input_columns=names,
            batched=True,
            batch_size=batch_size,
            writer_batch_size=batch_size,  # rows are large
            remove_columns=names,
            features=columns,
            cache_file_name=None if dataset.cache_files else str(folder / f"{fingerprint}.arrow"),
            new_fingerprint=fingerprint,
            desc="compute features",
        ).with_format("torch")
    finally:
        model.train(training)


@torch.no_grad()
def _features(model: EncoderClassifier, data_collator: Callable, columns: dict[str, list]) -> dict[str, list]:
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    inputs = {name: tensor.to(model.device) for name, tensor in data_collator(rows).items()}
    counts = inputs.pop("chunk_counts", torch.ones(len(rows), dtype=torch.long)).tolist()
    features, mask = model.encode(**inputs)
    chunks = iter(features[mask].float().cpu().split(mask.sum(1).tolist()))
    by_row = [list(islice(chunks, count)) for count in counts]
    return {
        "features": [torch.cat(parts).numpy() for parts in by_row],
        "attention_mask": [[[1] * len(part) for part in parts] for parts in by_row],
    }


def collate_features(rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Make a batch for [`EncoderClassifier`] of rows of [`compute_features`].

    Args:
        rows (`Sequence[dict]`): B rows of N chunks in all, with or without `labels`.

    Returns:
        `dict[str, torch.Tensor]`: `features` (N, tokens, layers, size) and `attention_mask` (N, tokens), padded
        at the end; `chunk_counts` (B,), where a row has several chunks; `labels`.
    """
    counts = torch.tensor([len(row["attention_mask"]) for row in rows])
    # The counts come first: the Trainer reads the number of rows off the first tensor.
    batch = {"chunk_counts": counts} if (counts > 1).any() else {}
    lengths = [len(chunk) for row in rows for chunk in row["attention_mask"]]
    chunks = torch.cat([torch.as_tensor(row["features"]) for row in rows]).split(lengths)
    batch["features"] = pad_sequence(chunks, batch_first=True)
    batch["attention_mask"] = pad_sequence([torch.ones(n, dtype=torch.long) for n in lengths], batch_first=True)
    if "labels" in rows[0]:
        batch["labels"] = torch.stack([torch.as_tensor(row["labels"]) for row in rows])
    return batch
