"""The training of one stage, whichever it is: resumed, with progress, interruptible."""

from __future__ import annotations

import logging
import time

from transformers.trainer_callback import ProgressCallback

from hf_ftstrategies.pipeline.interruptions import saving_on_signals
from hf_ftstrategies.pipeline.output import checkpoint_to_resume
from hf_ftstrategies.pipeline.progress import StageProgress
from hf_ftstrategies.trainer import StrategyTrainer

logger = logging.getLogger(__name__)


def train_stage(trainer: StrategyTrainer, title: str) -> float:
    """Train, or go on from the last whole checkpoint in the trainer's folder.

    Args:
        trainer (`StrategyTrainer`): Of the stage.
        title (`str`): Of the stage, for the progress bar.

    Returns:
        `float`: the seconds it took.
    """
    begin = time.perf_counter()
    checkpoint = checkpoint_to_resume(trainer.args)
    if not trainer.args.disable_tqdm:
        trainer.remove_callback(ProgressCallback)
        trainer.add_callback(StageProgress(title, trainer.plan()))
    if checkpoint is not None:
        logger.warning("Resuming the %s from %s.", title, checkpoint)
    with saving_on_signals(trainer):
        trainer.train(resume_from_checkpoint=checkpoint)
    return time.perf_counter() - begin
