"""The Trainer that calls strategies: the few hooks we override, each doing one thing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from transformers import Trainer, get_scheduler
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.trainer_utils import get_last_checkpoint, has_length

from hf_ftstrategies.arguments import StrategyTrainingArguments
from hf_ftstrategies.modeling.layer_map import LayerMap
from hf_ftstrategies.optim.bert_adam import BertAdam
from hf_ftstrategies.optim.flat_parameters import exchanged
from hf_ftstrategies.optim.groups import ParameterGroup, build_groups, check_complete
from hf_ftstrategies.optim.schedules import make_schedule, make_scheduler
from hf_ftstrategies.plan import Plan, differences, make_plan
from hf_ftstrategies.strategies import ReinitTopLayers, Strategy, TrainingLength, make_strategies
from hf_ftstrategies.strategies.state_files import JSON_NAME, load_states, read_json, save_states
from hf_ftstrategies.suggest import did_you_mean


class StrategyTrainerMixin:
    """Put before any `Trainer` subclass: `class MyTrainer(StrategyTrainerMixin, TheirTrainer)`.

    Without strategies it is the Trainer it is mixed into, with one exception: under gradient accumulation and
    with several processes, every example weighs the same in the loss. (Stock Trainer scales the losses of
    encoder models wrongly there: 2 x 4 micro-batches give four times the gradient of one batch of 8.)

    Args:
        args (`StrategyTrainingArguments` or `TrainingArguments`): The former switch strategies on by fields.
        strategies (`list[Strategy]`, *optional*): More of them, in the order in which they act.
        All other arguments are the Trainer's.

    Raises:
        ValueError: before any compute, where a strategy cannot work on this model with these arguments.
    """

    _weighed_labels: tuple[str, ...] = ("labels",)

    def __init__(self, *args, strategies: list[Strategy] | None = None, **kwargs):
        super().__init__(*args, **kwargs)
        self._knobs = self.args if isinstance(self.args, StrategyTrainingArguments) else None
        self.strategies = _all_strategies(self._knobs, strategies or [])
        self._check_optimizers()
        for strategy in self.strategies:
            self.add_callback(strategy)
        self._attached_model = self._prepared_model = self._plan = None
        self._mean_items: dict[str, torch.Tensor] = {}
        self._weighs_losses = self._needs_loss_weights()
        if self._weighs_losses:
            self.model_accepts_loss_kwargs = False
        if self.strategies:
            self._attach_strategies()

    @property
    def _is_strategic(self) -> bool:
        knobs = self._knobs
        return bool(self.strategies) or (
            knobs is not None and (knobs.lr_schedule is not None or not knobs.bias_correction)
        )

    def _check_optimizers(self) -> None:
        if self._is_strategic and (self.optimizer is not None or self.lr_scheduler is not None):
            raise ValueError(
                "optimizers=(...) was given, but the strategies make the parameter groups and the schedule: pass "
                "optimizer_cls_and_kwargs=(cls, kwargs) for another optimizer."
            )

    # --- Strategies and the model ---

    @property
    def layer_map(self) -> LayerMap:
        """Depths of the model being trained."""
        if self._attached_model is not self.model:
            self._attach_strategies()
        return self._layer_map

    def _attach_strategies(self) -> None:
        self._layer_map, self._attached_model = LayerMap.from_model(self.model), self.model
        for strategy in self.strategies:
            strategy.attach(self.args, self._layer_map)

    def _prepare_model_once(self) -> None:
        """Strategies change the model before the first step of a training; a resumed one has it in its weights."""
        if self.state.global_step == 0 and self._prepared_model is not self.model:
            self._prepared_model = self.model
            for strategy in self.strategies:
                strategy.prepare_model(self.model, self.layer_map)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args, **kwargs):
        """`Trainer.train`, after the plan was made, printed, and compared with the checkpoint's."""
        if has_length(self.train_dataset) and len(self.train_dataset) == 0:
            raise ValueError("The training data set is empty.")
        _check_labels(self.train_dataset, self.model)
        checkpoint = resume_from_checkpoint
        if checkpoint is True:
            checkpoint = get_last_checkpoint(self.args.output_dir)
        if self._is_strategic:
            self._check_output(checkpoint)
            self._plan = self.plan()
            if self.is_world_process_zero() and not self.args.disable_tqdm:
                Console(stderr=True).print(self._plan.table())
        if checkpoint:
            self._check_checkpoint(checkpoint)
        try:
            return super().train(resume_from_checkpoint, *args, **kwargs)
        except BaseException:  # Ctrl-C too: what is frozen now must not stay frozen in the next training
            for strategy in self.strategies:
                strategy.on_train_end(self.args, self.state, self.control)
            raise

    def _check_output(self, checkpoint: str | None) -> None:
        """Checkpoints of an earlier training are never overwritten silently; those of this trainer are its own."""
        found = get_last_checkpoint(self.args.output_dir) if Path(self.args.output_dir).is_dir() else None
        if found is not None and checkpoint is None and self._plan is None:
            raise ValueError(
                f"output_dir {self.args.output_dir!r} holds checkpoints of an earlier training (last {found!r}): pass "
                "resume_from_checkpoint=True to go on with it, or choose another output_dir."
            )

    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix: str = "eval") -> dict[str, float]:
        """`Trainer.evaluate`, also of other weights that a strategy keeps, as metrics `ensemble_...`.

        In training, an unknown `metric_for_best_model` is named with the nearest known.
        """
        metrics = super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)
        several = isinstance(self.eval_dataset if eval_dataset is None else eval_dataset, dict)
        for strategy in [] if several else self.strategies:  # each of several sets comes through here by itself
            weights = strategy.evaluated_weights()
            if weights is not None:
                with torch.random.fork_rng(devices=[]), exchanged(self.model, weights):  # a dataloader draws a seed
                    metrics |= super().evaluate(eval_dataset, ignore_keys, f"{metric_key_prefix}_ensemble")
        wanted = self.args.metric_for_best_model
        if self._is_strategic and self.is_in_train and wanted is not None and metric_key_prefix == "eval":
            key = wanted if wanted.startswith("eval_") else f"eval_{wanted}"
            if key not in metrics:
                raise ValueError(
                    f"metric_for_best_model is {wanted!r}, evaluation reports {', '.join(sorted(metrics))}."
                    f"{did_you_mean(key, metrics)}"
                )
        return metrics

    # --- Plan ---

    def plan(self) -> Plan:
        """What `train` will do, without doing it.

        Returns:
            `Plan`: with `.table()` for a terminal, `.to_dict()`, `.save(path)` and `.fingerprint`.

        Raises:
            ValueError: no training data, or phases that do not fit the training.
        """
        if self.train_dataset is None:
            raise ValueError("A plan needs the length of the training: give the trainer a train_dataset.")
        with torch.random.fork_rng(devices=[]):  # a dataloader may draw a seed
            numbers = self.set_initial_training_values(self.args, self.get_train_dataloader())
        epochs, steps_per_epoch, _, _, global_batch, _, total_steps = numbers
        length = TrainingLength(total_steps, steps_per_epoch)
        layer_map = self.layer_map
        return make_plan(
            model=self._model_facts(),
            training={
                "total_steps": total_steps,
                "steps_per_epoch": steps_per_epoch,
                "epochs": min(epochs, total_steps / steps_per_epoch),
                "batch": {
                    "per_device": self.args.per_device_train_batch_size,
                    "accumulation": self.args.gradient_accumulation_steps,
                    "processes": self.args.world_size,
                    "global": global_batch,
                },
                "optimizer": self._optimizer_name(),
                "schedule": self._schedule_name(total_steps),
                "seed": self.args.seed,
            },
            layer_map=layer_map,
            groups=self._groups(self.model),
            strategies=self.strategies,
            phases=[phase for strategy in self.strategies for phase in strategy.phases(length)],
            factor_at=self._factor_at(total_steps),
            reinitialised={d for s in self.strategies if isinstance(s, ReinitTopLayers) for d in s.depths(layer_map)},
        )

    def _model_facts(self) -> dict[str, Any]:
        return {
            "class": type(self.accelerator.unwrap_model(self.model)).__name__,
            "name": getattr(self.model.config, "_name_or_path", ""),
            "blocks": self.layer_map.num_blocks,
            "shared_blocks": self.layer_map.shared_blocks,
            "parameters": sum(p.numel() for p in self.model.parameters()),
        }

    def _optimizer_name(self) -> str:
        cls, _ = self._optimizer_cls_and_kwargs(self.model)
        return f"{cls.__name__}{' (no bias correction)' if cls is BertAdam else ''}" + (
            f", weight decay {self.args.weight_decay:g}" if self.args.weight_decay else ""
        )

    def _schedule_name(self, total_steps: int) -> str:
        if self._knobs is not None and self._knobs.lr_schedule is not None:
            return make_schedule(self._knobs, total_steps).describe()
        warmup = self.args.get_warmup_steps(total_steps)
        return str(self.args.lr_scheduler_type.value) + (f", warm-up {warmup} steps" if warmup else "")

    def _factor_at(self, total_steps: int):
        if self._knobs is not None and self._knobs.lr_schedule is not None:
            return make_schedule(self._knobs, total_steps)
        idle = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        scheduler = get_scheduler(
            self.args.lr_scheduler_type,
            optimizer=idle,
            num_warmup_steps=self.args.get_warmup_steps(total_steps),
            num_training_steps=total_steps,
            scheduler_specific_kwargs=self.args.lr_scheduler_kwargs,
        )
        return scheduler.lr_lambdas[0] if isinstance(scheduler, torch.optim.lr_scheduler.LambdaLR) else None

    # --- Optimizer and schedule ---

    def _groups(self, model) -> list[ParameterGroup]:
        groups = build_groups(
            self.layer_map,
            self.get_decay_parameter_names(model),
            self.args.learning_rate,
            self.args.weight_decay,
        )
        for strategy in self.strategies:
            strategy.adjust_groups(groups, self.layer_map)
        check_complete(groups, model)
        return groups

    def _optimizer_cls_and_kwargs(self, model) -> tuple[type, dict[str, Any]]:
        cls, kwargs = self.optimizer_cls_and_kwargs or self.get_optimizer_cls_and_kwargs(self.args, model)
        if self._knobs is not None and not self._knobs.bias_correction:
            return BertAdam, {**kwargs, "max_norm_per_tensor": self._knobs.max_grad_norm_per_tensor}
        return cls, kwargs

    def create_optimizer(self, model=None):
        """Prepare the model, build the groups by depth, and let Trainer make its optimizer of them."""
        self._prepare_model_once()
        if self.optimizer is not None or not self._is_strategic:
            return super().create_optimizer(model)
        trained = self.model if model is None else model
        cls, kwargs = self._optimizer_cls_and_kwargs(trained)
        groups = [group.for_optimizer() for group in self._groups(trained)]
        if not (isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer)) or "optimizer_dict" in kwargs:
            raise ValueError(
                f"optim={str(self.args.optim)!r} builds parameter groups of its own, which the strategies would "
                "lose: choose an optimizer that takes groups, such as adamw_torch_fused."
            )
        given = self.optimizer_cls_and_kwargs
        self.optimizer_cls_and_kwargs = (cls, {**kwargs, "params": groups})
        try:
            optimizer = super().create_optimizer(model)
        finally:
            self.optimizer_cls_and_kwargs = given
        if len(optimizer.param_groups) != len(groups):
            raise ValueError(
                f"The strategies ask for {len(groups)} parameter groups, the optimizer has "
                f"{len(optimizer.param_groups)}: the create_optimizer of {type(self).__name__} ignores "
                "optimizer_cls_and_kwargs."
            )
        return optimizer

    def create_scheduler(self, num_training_steps: int, optimizer=None):
        """The schedule of `lr_schedule`, or Trainer's own."""
        if self._knobs is None or self._knobs.lr_schedule is None or self.lr_scheduler is not None:
            return super().create_scheduler(num_training_steps, optimizer)
        schedule = make_schedule(self._knobs, num_training_steps)
        self.lr_scheduler = make_scheduler(self.optimizer if optimizer is None else optimizer, schedule)
        self._created_lr_scheduler = True  # as Trainer marks its own: made anew by a second train()
        return self.lr_scheduler

    def log(self, logs: dict[str, float], *args, **kwargs) -> None:
        """With the training loss, also log the rates by depth and what strategies measured."""
        if "learning_rate" in logs and self.strategies:
            logs |= self._rates_by_depth(logs["learning_rate"])
            for strategy in self.strategies:
                logs |= self._means_over_processes(strategy.training_logs(self.state.global_step))
        super().log(logs, *args, **kwargs)

    def _means_over_processes(self, values: dict[str, float | torch.Tensor]) -> dict[str, float]:
        if self.args.world_size == 1:
            return {name: float(value) for name, value in values.items()}
        tensors = {name: torch.as_tensor(value, device=self.args.device) for name, value in values.items()}
        return {name: self.accelerator.reduce(value, "mean").item() for name, value in tensors.items()}

    def _rates_by_depth(self, logged: float) -> dict[str, float]:
        """The rates by depth, where they differ, beside Trainer's one rate, which is the head's; 0 where frozen."""
        rates: dict[str, float] = {}
        head = self.optimizer.param_groups[0]
        for group in self.optimizer.param_groups:
            trains = any(p.requires_grad for p in group["params"])
            # the logged rate is that before the scheduler's step, so the others are scaled from their peaks
            peak, top = (g.get("initial_lr", g["lr"]) for g in (group, head))
            rate = logged * peak / top * trains if top else 0.0
            name = f"learning_rate/{self.layer_map.name_of(group['depth']).replace(' ', '_')}"
            rates[name] = max(rate, rates.get(name, 0.0))
        return rates if len(set(rates.values())) > 1 else {}

    # --- Loss ---

    def _needs_loss_weights(self) -> bool:
        """Whether losses must be weighted by us: causal language models and `compute_loss_func` do it themselves."""
        several = self.args.gradient_accumulation_steps * self.args.world_size * max(1, self.args.n_gpu) > 1
        own = self.compute_loss_func is not None or _is_causal(self.model)
        return several and not own

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        """Also count the labels of the whole step, over micro-batches and processes."""
        batches, num_items = super().get_batch_samples(epoch_iterator, num_batches, device)
        for name in self._weighed_labels if self._weighs_losses and batches else ():
            if name in batches[0]:
                items = sum(_count_labels(batch[name]) for batch in batches).to(device)
                total = self.accelerator.gather(items).sum()
                self._mean_items[name] = total / (len(batches) * self.args.world_size)
        return batches, num_items

    def compute_loss(self, model, inputs, return_outputs: bool = False, **kwargs):
        """Task loss plus the strategies' terms, weighted by the share of labels in this micro-batch."""
        given = dict(inputs)  # label smoothing takes the labels out of `inputs`
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        if model.training:
            loss = self._weigh(loss, given, outputs)
            for strategy in self.strategies:
                term = strategy.loss_term(model, given, outputs)
                loss = loss if term is None else loss + term * self._share(given, "labels")
        return (loss, outputs) if return_outputs else loss

    def _weigh(self, loss, inputs, outputs):
        """The task loss of a micro-batch as its part of the mean over the whole step."""
        return loss * self._share(inputs, "labels")

    def _share(self, inputs, name: str) -> torch.Tensor | float:
        """Labels of this micro-batch over their mean number per micro-batch of the step; 1 where all are alike."""
        return _count_labels(inputs[name]) / self._mean_items[name] if name in self._mean_items else 1.0

    # --- Checkpoints ---

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        # private hook: `on_save` comes after the push and the rotation, too late for our state
        super()._save_optimizer_and_scheduler(output_dir)
        if self._plan is not None and self.args.should_save:
            save_states(output_dir, self.strategies, self._plan.fingerprint)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        # private hook: the counterpart, after the optimizer was made and before on_train_begin
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None and self.strategies:
            load_states(checkpoint, self.strategies)

    def _load_best_model(self) -> None:
        # private hook: on_train_end comes after other callbacks have looked at the final model, and recipes that
        # find a run stopped call this alone
        super()._load_best_model()
        if self.strategies:
            self.accelerator.wait_for_everyone()  # the first process may still be writing their states
        for strategy in self.strategies:
            strategy.load_best(self.model, self.state.best_model_checkpoint, self.args.metric_for_best_model)

    def _check_checkpoint(self, checkpoint: str | os.PathLike) -> None:
        """Refuse a checkpoint of another plan, showing the differences."""
        if not Path(checkpoint).is_dir():
            raise ValueError(f"There is no checkpoint folder {str(checkpoint)!r} to resume from.")
        if not Path(checkpoint, JSON_NAME).is_file():
            if self._is_strategic:
                raise ValueError(
                    f"The checkpoint {str(checkpoint)!r} has no {JSON_NAME}: it was saved without this plan, or as "
                    "weights only. Start a new run from its weights instead."
                )
            return
        saved = read_json(checkpoint)["fingerprint"]
        differing = differences(saved, {} if self._plan is None else self._plan.fingerprint)
        if differing:
            shown = "\n  ".join(differing[:12] + ["..."] * (len(differing) > 12))
            raise ValueError(
                f"The checkpoint {str(checkpoint)!r} was made by another plan:\n  {shown}\nResume with the settings "
                "of the checkpoint, or start a new run from its weights in another output_dir."
            )


class StrategyTrainer(StrategyTrainerMixin, Trainer):
    """`transformers.Trainer` with strategies; see `StrategyTrainerMixin`."""


def _all_strategies(knobs: StrategyTrainingArguments | None, given: list[Strategy]) -> list[Strategy]:
    for strategy in given if isinstance(given, (list, tuple)) else [given]:
        if not isinstance(given, (list, tuple)) or not isinstance(strategy, Strategy):
            raise ValueError(
                f"strategies holds {strategy!r}: give a list of Strategy objects, such as "
                "[LayerwiseLearningRate(0.95)], or use the fields of StrategyTrainingArguments."
            )
    strategies = ([] if knobs is None else make_strategies(knobs)) + list(given)
    names = [strategy.name for strategy in strategies]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ValueError(
            f"{', '.join(doubled)} is there twice: a strategy comes either from the fields of "
            "StrategyTrainingArguments or from strategies=[...], and once."
        )
    return strategies


def _is_causal(model) -> bool:
    """Whether it is a causal language model; the older ones (GPT-2) have no `loss_type`."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    named = type(base).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
    return named or getattr(base, "loss_type", None) == "ForCausalLM"


def _count_labels(labels: torch.Tensor) -> torch.Tensor:
    return labels.ne(-100).sum()


def _check_labels(dataset, model) -> None:
    """Class labels outside the model's would fail as an index error deep in torch; here they are named."""
    config = getattr(model, "config", None)
    names = getattr(dataset, "column_names", None) or (list(dataset[0]) if isinstance(dataset, list) else [])
    column = next((name for name in ("labels", "label") if name in names), None)
    if column is None or config is None or not has_length(dataset):
        return
    if getattr(dataset, "format", {}).get("type") == "custom":  # a transform makes the labels when they are read
        return
    if config.num_labels < 2 or config.problem_type == "regression":
        return
    labels = [row[column] for row in dataset] if isinstance(dataset, list) else dataset[column][:]
    known = (*range(config.num_labels), -100)
    wrong = [(row, label) for row, label in enumerate(labels) if isinstance(label, int) and label not in known]
    if wrong:
        rows = ", ".join(f"{label} in row {row}" for row, label in wrong[:3])
        raise ValueError(
            f"{len(wrong)} labels are outside 0 to {config.num_labels - 1} ({rows}): the model has "
            f"{config.num_labels} labels (num_labels)."
        )
