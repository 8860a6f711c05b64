"""How well masked words, and next sentences, are predicted: what a `Trainer` needs to evaluate further pre-training.

```python
Trainer(
    model, args, eval_dataset=rows, data_collator=collator,
    preprocess_logits_for_metrics=preprocess_logits_for_metrics,
    compute_metrics=compute_pretraining_metrics,
)
```

The logits of a whole evaluation set would not fit into memory (a vocabulary for each masked word); the first function
leaves two numbers of each, the second makes the means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn.functional import cross_entropy

if TYPE_CHECKING:
    from transformers import EvalPrediction


def preprocess_logits_for_metrics(
    logits: torch.Tensor | tuple[torch.Tensor, ...], labels: torch.Tensor | tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Reduce the logits of a batch of B texts to hits and negative log-likelihoods.

    Args:
        logits (`torch.Tensor` or `tuple`): Of the words, (B, P, vocabulary) or (B, T, vocabulary); of a pre-training
            model the tuple of these, those of the next sentence, (B, 2), and what else it returns.
        labels (`torch.Tensor` or `tuple`): Of the words, (B, P) or (B, T), -100 where none is to be predicted; with
            next sentences the tuple of these and of (B,), as `label_names` of `TrainingArguments` orders them by
            default.

    Returns:
        `tuple[torch.Tensor, ...]`: Hits (int64, 0 or 1) and negative log-likelihoods (float32, nats) in the shape of
        the labels, first of the words, then, if they have labels, of the next sentences.
    """
    logits = logits if isinstance(logits, tuple) else (logits,)
    labels = labels if isinstance(labels, tuple) else (labels,)
    return tuple(score for pair in zip(logits, labels) for score in _hits_and_nll(*pair))


def _hits_and_nll(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    nll = cross_entropy(logits.flatten(0, -2).float(), labels.flatten(), ignore_index=-100, reduction="none")
    return (logits.argmax(-1) == labels).long(), nll.view_as(labels)


def compute_pretraining_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """Means over all masked words, and over all pairs of sentences, of an evaluation set.

    Every masked word has the same weight, in whichever batch it is, where `eval_loss` is the mean over the batches.

    Args:
        prediction (`EvalPrediction`): `predictions` as [`preprocess_logits_for_metrics`] returns them, `label_ids` as
            it takes them, both padded with -100 where batches differ.

    Returns:
        `dict[str, float]`: `mlm_loss` (nats), `mlm_accuracy`, `perplexity` (exp of `mlm_loss`), and with labels of next
        sentences `nsp_loss` and `nsp_accuracy`.

    Raises:
        ValueError: Not one masked word (or pair) has a label; predictions that were not reduced.
    """
    labels = prediction.label_ids if isinstance(prediction.label_ids, tuple) else (prediction.label_ids,)
    scores = prediction.predictions
    if not isinstance(scores, tuple) or len(scores) != 2 * len(labels):
        raise ValueError(
            "These metrics are made of hits and likelihoods, not of logits: give the Trainer "
            "preprocess_logits_for_metrics of this module, too."
        )
    accuracy, loss = _means(*scores[:2], labels[0], "masked word")
    metrics = {"mlm_loss": loss, "mlm_accuracy": accuracy}
    with np.errstate(over="ignore"):
        metrics["perplexity"] = float(np.exp(loss))
    if len(labels) > 1:
        metrics["nsp_accuracy"], metrics["nsp_loss"] = _means(*scores[2:], labels[1], "pair of sentences")
    return metrics


def _means(hits: np.ndarray, nll: np.ndarray, labels: np.ndarray, what: str) -> tuple[float, float]:
    counts = np.asarray(labels) != -100
    if not counts.any():
        raise ValueError(f"Not one {what} of the evaluation set has a label: check the data collator.")
    return float(hits[counts].mean()), float(nll[counts].mean(dtype=np.float64))
