"""The Trainer of further pre-training: two losses, each a mean over the whole step, and models kept on the way."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from transformers import Trainer, TrainerCallback

from hf_ftstrategies.modeling.pretraining import pretraining_losses
from hf_ftstrategies.pipeline.interruptions import StopAtBadLoss
from hf_ftstrategies.trainer import StrategyTrainerMixin


class _TwoLosses(Trainer):
    """Computes the losses itself, once: a BERT without labels of next sentences would return none at all."""

    def compute_loss(self, model, inputs, return_outputs: bool = False, **kwargs):
        labels = {name: inputs[name] for name in ("labels", "next_sentence_label") if name in inputs}
        outputs = model(**{name: value for name, value in inputs.items() if name not in labels})
        self._losses = pretraining_losses(outputs, **labels)
        loss = self._losses.mlm_sum / self._losses.mlm_count
        if "next_sentence_label" in labels:
            loss = loss + self._losses.nsp_sum / self._losses.nsp_count
        return (loss, outputs) if return_outputs else loss


class PretrainingTrainer(StopAtBadLoss, StrategyTrainerMixin, _TwoLosses):
    """`StrategyTrainer` whose loss is the mean over all masked tokens plus the mean over all sentence pairs.

    Both means are over the optimizer step, whatever its micro-batches and processes; both are logged.

    Paper: Devlin et al. 2018, appendix A.2.
    """

    _weighed_labels = ("labels", "next_sentence_label")

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._sums = torch.zeros(4, dtype=torch.float64, device=self.args.device)

    def _weigh(self, loss, inputs, outputs):
        losses = self._losses
        self._sums += torch.stack([value.detach().double() for value in losses])
        loss = losses.mlm_sum / losses.mlm_count * self._share(inputs, "labels")
        if "next_sentence_label" in inputs:
            loss = loss + losses.nsp_sum / losses.nsp_count * self._share(inputs, "next_sentence_label")
        return loss

    def log(self, logs: dict[str, float], *args, **kwargs) -> None:
        """Log the two losses since the last log beside their sum."""
        if "loss" in logs:
            masked, masked_count, next_sentence, pairs = self.accelerator.reduce(self._sums, "sum").tolist()
            self._sums.zero_()
            logs["mlm_loss"] = masked / max(1, masked_count)
            if pairs:
                logs["nsp_loss"] = next_sentence / pairs
        super().log(logs, *args, **kwargs)


class NewMasks(TrainerCallback):
    """Tell the examples which epoch it is, so that dynamic masks are drawn anew (accelerate does not always)."""

    def on_epoch_begin(self, args, state, control, train_dataloader=None, **kwargs):
        """Also in the middle of an epoch, after a resume."""
        if hasattr(train_dataloader.dataset, "set_epoch"):
            train_dataloader.dataset.set_epoch(int(state.epoch or 0))


class KeepModelAt(TrainerCallback):
    """Save the model after given steps, for the fine-tuning that starts from each.

    Args:
        steps (`tuple[int, ...]`): Optimizer steps.
        folder (`Path`): The models go to `step-N` in it.
    """

    def __init__(self, steps: tuple[int, ...], folder: Path):
        self.steps, self.folder = steps, folder

    def path(self, step: int) -> Path:
        """Where the model of a step is."""
        return self.folder / f"step-{step}"

    def on_step_end(self, args, state, control, model=None, processing_class=None, **kwargs):
        """Before the checkpoint of the same step: if that is there, the model is."""
        if state.global_step in self.steps and args.should_save:
            part = self.folder / f"step-{state.global_step}.part"
            shutil.rmtree(part, ignore_errors=True)
            model.save_pretrained(part)
            processing_class.save_pretrained(part)
            shutil.rmtree(self.path(state.global_step), ignore_errors=True)
            part.replace(self.path(state.global_step))
