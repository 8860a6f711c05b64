"""The stage before fine-tuning: masked language model and next sentence prediction on the task's or other texts."""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers import AutoTokenizer, set_seed

from hf_ftstrategies.arguments import StrategyTrainingArguments
from hf_ftstrategies.data.corpora import corpus_names
from hf_ftstrategies.data.masking import PretrainingCollator
from hf_ftstrategies.evaluation.language_modeling import compute_pretraining_metrics, preprocess_logits_for_metrics
from hf_ftstrategies.modeling.masked_positions import predict_masked_only
from hf_ftstrategies.modeling.packaged import find_pretrained
from hf_ftstrategies.modeling.pretraining import load_pretraining_model
from hf_ftstrategies.pipeline.arguments import RunArguments, divide_batch
from hf_ftstrategies.pipeline.errors import as_value_errors
from hf_ftstrategies.pipeline.fine_tuning import load_pretrained
from hf_ftstrategies.pipeline.output import OutputFolder
from hf_ftstrategies.pipeline.pretraining_arguments import PretrainingArguments
from hf_ftstrategies.pipeline.pretraining_examples import (
    Examples,
    Texts,
    find_texts,
    make_examples,
    make_streamed_examples,
)
from hf_ftstrategies.pipeline.pretraining_trainer import KeepModelAt, NewMasks, PretrainingTrainer
from hf_ftstrategies.pipeline.progress import hush_transformers
from hf_ftstrategies.pipeline.training import train_stage

# What the training arguments of fine-tuning also say about this stage: where and how it computes, not what.
_SHARED = (
    "use_cpu", "bf16", "fp16", "tf32", "seed", "data_seed", "report_to", "disable_tqdm", "logging_steps",
    "dataloader_num_workers", "torch_compile", "ddp_backend", "ddp_timeout", "run_name",
    "activation_checkpointing", "activation_checkpointing_kwargs", "optim",
)  # fmt: skip


@dataclass
class FurtherPretraining:
    """A prepared further pre-training: examples made, model loaded, trainer built, nothing trained.

    Args:
        options (`PretrainingArguments`): As given.
        texts (`Texts`): Where the corpus comes from.
        examples (`Examples`): What is made of it.
        fresh (`tuple[str, ...]`): Heads that the checkpoint did not have.
        kept (`KeepModelAt`): Where the models are.
        trainer (`PretrainingTrainer`): Ready to train.
    """

    options: PretrainingArguments
    texts: Texts
    examples: Examples
    fresh: tuple[str, ...]
    kept: KeepModelAt
    trainer: PretrainingTrainer

    def train(self) -> float:
        """Train, or go on from the last checkpoint. Returns the seconds it took."""
        return train_stage(self.trainer, "further pre-training")

    def notes(self) -> list[str]:
        """What a reader of the results should know about the texts."""
        names = ", ".join(
            f"{part.name} ({', '.join(part.splits)}; {part.documents:,} texts)" for part in self.examples.parts
        )
        found = [f"further pre-trained on {names}"]
        left_out = sum(part.left_out for part in self.examples.parts)
        if self.options.transductive:
            found.append(
                f"transductive: the texts of the {self.texts.held_out} split were pre-trained on, without labels"
            )
        else:
            found.append(f"{left_out:,} texts that also stand in the {self.texts.held_out} split were left out of them")
        if self.fresh:
            found.append(f"the checkpoint had no {', no '.join(self.fresh)}: drawn anew")
        if self.examples.statistics["warning"]:
            found.append(self.examples.statistics["warning"])
        return found

    def facts(self) -> dict[str, Any]:
        """What there is to know about the stage, as JSON values."""
        history = self.trainer.state.log_history
        evaluated = [log for log in history if "eval_mlm_loss" in log]
        return {
            "corpus": [part.to_dict() for part in self.examples.parts],
            "plan": self.options.describe(),
            "choice": self.options.further_pretraining,
            "transductive": self.options.transductive,
            "notes": self.notes(),
            "examples": self.examples.statistics,
            "steps": self.trainer.state.global_step,
            "batch": self.options.pretraining_batch_size,
            "learning_rate": self.options.pretraining_learning_rate,
            "before": {key: value for key, value in evaluated[0].items() if key.startswith("eval_")},
            "after": {key: value for key, value in evaluated[-1].items() if key.startswith("eval_")},
            "history": history,
            "models": {str(step): self.kept.path(step).name for step in self.kept.steps},
        }


def further_pretrain(
    run: RunArguments, args: StrategyTrainingArguments, options: PretrainingArguments, folder: OutputFolder
) -> dict[str, Any]:
    """Do the stage, or read what it left when it was done before.

    Args:
        As of `prepare_further_pretraining`.

    Returns:
        `dict`: the contents of `results.json` in the stage's folder, which also holds the models.
    """
    if folder.is_finished:
        return folder.read_json("results.json")
    with as_value_errors():
        stage = prepare_further_pretraining(run, args, options, folder)
        plan = stage.trainer.plan()
    seconds = stage.train()
    facts = {**stage.facts(), "train_seconds": seconds}
    if folder.is_owner:
        plan.save(folder.path / "plan.json")
        folder.write_json("results.json", facts)
        shutil.rmtree(folder.checkpoints, ignore_errors=True)  # the models are kept
        folder.finish()
    stage.trainer.accelerator.wait_for_everyone()  # the models are there for every process
    return facts


def prepare_further_pretraining(
    run: RunArguments, args: StrategyTrainingArguments, options: PretrainingArguments, folder: OutputFolder
) -> FurtherPretraining:
    """Everything up to the first training step.

    Args:
        run (`RunArguments`): Model and data of the fine-tuning that follows.
        args (`StrategyTrainingArguments`): Of that fine-tuning; device, precision and seed are taken from it.
        options (`PretrainingArguments`): Of this stage.
        folder (`OutputFolder`): Of this stage.

    Raises:
        ValueError: before the model is loaded, where that is possible.
    """
    hush_transformers()
    names = corpus_names(options.further_pretraining, run.dataset)
    args = _arguments(args, options, folder)
    source = find_pretrained(run.model)
    tokenizer = load_pretrained(partial(AutoTokenizer.from_pretrained, trust_remote_code=False), source, run.model)
    texts = find_texts(names, run, options)
    set_seed(args.seed)  # fresh heads are drawn here
    load = partial(load_pretraining_model, next_sentence=options.next_sentence, dtype=torch.float32)
    heads = load_pretrained(load, source, run.model)
    predict_masked_only(heads.model)
    if not heads.has_next_sentence:
        args.label_names = ["labels"]  # Trainer would wait for the other of a BERT, and evaluate nothing
    make = make_streamed_examples if options.corpus_streaming else make_examples
    examples = make(texts, tokenizer, run, options, heads.has_next_sentence)
    kept = KeepModelAt(options.starting_points, folder.path)
    trainer = PretrainingTrainer(
        heads.model,
        args,
        train_dataset=examples.train,
        eval_dataset=examples.validation,
        processing_class=tokenizer,
        data_collator=PretrainingCollator(tokenizer),
        compute_metrics=compute_pretraining_metrics,
        preprocess_logits_for_metrics=preprocess_logits_for_metrics,
        callbacks=[NewMasks(), kept],
    )
    return FurtherPretraining(options, texts, examples, heads.fresh, kept, trainer)


def _arguments(
    args: StrategyTrainingArguments, options: PretrainingArguments, folder: OutputFolder
) -> StrategyTrainingArguments:
    """BERT's own settings for pre-training, computed as the fine-tuning computes."""
    batch, per_device = options.pretraining_batch_size, options.pretraining_device_batch_size
    size, accumulation = divide_batch(batch, per_device, args.world_size, "pretraining_batch_size")
    defaults = {field.name: field.default for field in dataclasses.fields(args)}
    shared = {name: getattr(args, name) for name in _SHARED if name in defaults}
    return StrategyTrainingArguments(
        output_dir=str(folder.checkpoints),
        max_steps=options.pretraining_steps,
        per_device_train_batch_size=size,
        gradient_accumulation_steps=accumulation,
        per_device_eval_batch_size=size,
        learning_rate=options.pretraining_learning_rate,
        warmup_steps=options.pretraining_warmup_steps,
        lr_schedule="bert_linear",
        bias_correction=options.pretraining_bias_correction,
        weight_decay=0.01,
        adam_epsilon=1e-6,
        eval_strategy="steps",
        eval_steps=options.save_steps,
        eval_on_start=True,
        save_steps=options.save_steps,
        save_total_limit=1,
        dataloader_pin_memory=args.dataloader_pin_memory and args.device.type != "cpu",  # torch warns about it there
        accelerator_config={"dispatch_batches": False},  # every process reads a stream, and takes its slice
        remove_unused_columns=False,  # the collator takes the masks apart from what forward() names
        **{name: value for name, value in shared.items() if value != defaults[name]},
    )
