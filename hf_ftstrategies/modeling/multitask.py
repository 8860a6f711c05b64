"""One encoder, a head for each of several tasks.

Imports nothing of this package but `classifier.py` beside it, for the reason given there. The Auto classes load it
after `import hf_ftstrategies`, or anywhere with `trust_remote_code=True`.
"""

import copy
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

from .classifier import EncoderClassifier, EncoderClassifierConfig, _did_you_mean

PROBLEM_TYPES = ("single_label_classification", "multi_label_classification", "regression")
_ENTRIES = ("id2label", "num_labels", "problem_type", "task_id")
_SHARED = tuple(EncoderClassifierConfig.__annotations__)  # what the single-task model has settings for
_LABELS = ("id2label", "label2id", "problem_type")


class MultiTaskClassifierConfig(EncoderClassifierConfig):
    """What a [`MultiTaskClassifier`] reads of its encoder, and its tasks.

    `id2label`, `label2id`, `num_labels` and `problem_type` are those of the active task, also after it was changed.

    Args:
        tasks (`dict[str, dict]`): For each task, by name, either `id2label` (`dict[int, str]`) or `num_labels`
            (`int`), and optionally `problem_type` (`str`), which the first labels settle if it is None, and `task_id`
            (`int`), its number in a batch's `task_ids`: its place in the dictionary unless given. Kept in the order
            of these numbers, as `id2label`, `problem_type` and `task_id`.
        active_task (`str`, *optional*): The task whose head answers where a batch does not name one; the first if
            None.
        **kwargs: As of [`EncoderClassifierConfig`], but no labels.

    Raises:
        ValueError: As [`EncoderClassifierConfig`]; no tasks, names that no module can have, labels or problem types
            that are none, an unknown active task, labels beside those of the tasks.
    """

    model_type = "multitask_classifier"
    has_no_defaults_at_init = True

    tasks: dict[str, dict[str, Any]] | None = None
    active_task: str | None = None

    def __post_init__(self, **kwargs):
        if kwargs.get("num_labels") is not None:
            raise ValueError("num_labels is given, but each task has its own: give it in tasks.")
        super().__post_init__(**kwargs)

    def __setattr__(self, key: str, value: Any) -> None:
        super().__setattr__(key, value)
        if key == "active_task" and "_name_or_path" in self.__dict__:  # changed, not made
            self.follow_active_task()

    def settle(self) -> None:
        """Check the settings, cut the blocks above the highest layer that is read, and number the tasks.

        Raises:
            ValueError: As the class.
        """
        super().settle()
        self.tasks = _settle_tasks(self.tasks)
        if self.active_task is None:
            self.active_task = next(iter(self.tasks))
        task = self.task(self.active_task)
        labels = self.id2label and {int(index): label for index, label in self.id2label.items()}
        for name, given in (("id2label", labels), ("problem_type", self.problem_type)):
            if given is not None and given != task[name]:
                raise ValueError(
                    f"{name} is {given!r}, but task {self.active_task!r} has {task[name]!r}: give it in tasks alone."
                )
        self.follow_active_task()

    def task(self, name: str) -> dict[str, Any]:
        """The entry of a task.

        Args:
            name (`str`): Of the task.

        Returns:
            `dict[str, Any]`: `task_id`, `id2label` and `problem_type`.

        Raises:
            ValueError: There is no such task; names the nearest.
        """
        if name not in self.tasks:
            raise ValueError(
                f"There is no task {name!r}.{_did_you_mean(name, self.tasks)} Tasks: {', '.join(self.tasks)}."
            )
        return self.tasks[name]

    def follow_active_task(self) -> None:
        """Take labels and problem type from the entry of the active task."""
        task = self.task(self.active_task)
        self.id2label, self.problem_type = dict(task["id2label"]), task["problem_type"]
        self.label2id = {label: index for index, label in self.id2label.items()}


def _settle_tasks(tasks: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(tasks, Mapping) or not tasks:
        raise ValueError(f"tasks is {tasks!r}: give a dict such as {{'trec': {{'num_labels': 6}}}}.")
    settled = {name: _settle_task(name, task, place) for place, (name, task) in enumerate(tasks.items())}
    ids = {name: task["task_id"] for name, task in settled.items()}
    if sorted(map(str, ids.values())) != sorted(map(str, range(len(ids)))):
        raise ValueError(f"The task_id of the tasks are {ids}: give 0 to {len(ids) - 1}, each once, or none.")
    return dict(sorted(settled.items(), key=lambda item: item[1]["task_id"]))  # JSON sorts by name


def _settle_task(name: Any, task: Any, place: int) -> dict[str, Any]:
    if not isinstance(name, str) or not name or "." in name or hasattr(nn.ModuleDict(), name):
        raise ValueError(f"No task can be called {name!r}: its head is a module of that name, which torch refuses.")
    for key in task if isinstance(task, Mapping) else ():
        if key not in _ENTRIES:
            raise ValueError(f"Task {name!r} has an entry {key!r}.{_did_you_mean(key, _ENTRIES)}")
    if not isinstance(task, Mapping) or ("id2label" in task) == ("num_labels" in task):
        raise ValueError(f"Task {name!r} is {task!r}: give a dict with either id2label or num_labels.")
    problem = task.get("problem_type")
    labels = _default_labels(name, task["num_labels"]) if "num_labels" in task else _read_labels(name, task["id2label"])
    if problem not in (None, *PROBLEM_TYPES):
        raise ValueError(
            f"problem_type of task {name!r} is {problem!r}.{_did_you_mean(problem, PROBLEM_TYPES)} "
            f"Known: {', '.join(PROBLEM_TYPES)}."
        )
    if problem == PROBLEM_TYPES[0] and len(labels) == 1:
        raise ValueError(f"Task {name!r} has one label, but problem_type {problem!r}: that needs two or more.")
    return {"task_id": task.get("task_id", place), "id2label": labels, "problem_type": problem}


def _default_labels(name: str, count: Any) -> dict[int, str]:
    if type(count) is not int or count < 1:
        raise ValueError(f"num_labels of task {name!r} is {count!r}: give 1 or more.")
    return {index: f"LABEL_{index}" for index in range(count)}


def _read_labels(name: str, id2label: Any) -> dict[int, str]:
    found = {str(index): label for index, label in id2label.items()} if isinstance(id2label, Mapping) else {}
    labels = {index: found.get(str(index)) for index in range(len(found))}  # JSON has strings, and sorts them as such
    if not labels or None in labels.values():
        raise ValueError(f"id2label of task {name!r} is {id2label!r}: give a dict of names for 0, 1, and so on.")
    return labels


class MultiTaskClassifier(EncoderClassifier):
    """An [`EncoderClassifier`] with a head for each task; all else is shared. See [`MultiTaskClassifierConfig`].

    A batch is of one task. The heads of the others take no part: their gradient is None, so that no optimizer moves
    them. Several processes therefore need `ddp_find_unused_parameters=True`: Trainer's default, but not with activation
    checkpointing, where it must be set.

    ```python
    tasks = {"trec": {"num_labels": 6}, "stsb": {"num_labels": 1}}
    model = MultiTaskClassifier.from_encoder("bert-base-uncased", tasks=tasks)
    rows = MultiTaskRows({"trec": trec, "stsb": stsb}, tasks=model.config.tasks, block_size=32)
    args = StrategyTrainingArguments(..., per_device_train_batch_size=32, train_sampling_strategy="sequential")
    trainer = StrategyTrainer(model, args, train_dataset=rows, data_collator=DataCollatorWithPadding(tokenizer))
    trainer.train()
    trainer.evaluate({"trec": trec_test.add_column("task_ids", [0] * len(trec_test))})
    AutoModelForSequenceClassification.from_pretrained(saved, active_task="stsb")  # answers with that head
    ```

    Args:
        config (`MultiTaskClassifierConfig`): Settings.
        encoder (`PreTrainedModel`, *optional*): As in [`EncoderClassifier`].
        active_task (`str`, *optional*): Instead of the one of `config`.

    Paper: Sun et al. 2019, sections 3.4 and 5.5: all layers shared but the last. Liu et al. 2019, "Multi-Task Deep
    Neural Networks" (MT-DNN), section 3.

    Differs: `head="mlp"` gives each task both of its layers. MT-DNN has a dropout rate for each task.
    """

    config_class = MultiTaskClassifierConfig

    def __init__(
        self,
        config: MultiTaskClassifierConfig,
        encoder: PreTrainedModel | None = None,
        active_task: str | None = None,
    ):
        if active_task is not None:  # `pipeline` passes on what it has set in the configuration
            config.active_task = active_task
        super().__init__(config, encoder)

    def _make_classifier(self, size: int) -> nn.Module:
        """The heads; in the place of the one classifier nothing, so that `super().forward` ends before it."""
        self.heads, active = nn.ModuleDict(), self.config.active_task
        for name in self.config.tasks:
            self.config.active_task = name  # and with it `num_labels`
            self.heads[name] = super()._make_classifier(size)
        self.config.active_task = active
        return nn.Identity()

    @classmethod
    def from_encoder(
        cls,
        name_or_path: str,
        trust_remote_code: bool = False,
        *,
        tasks: dict[str, dict[str, Any]],
        active_task: str | None = None,
        **settings: Any,
    ) -> "MultiTaskClassifier":
        """Start from a pre-trained encoder, with new heads.

        Args:
            name_or_path (`str`), trust_remote_code (`bool`): As in [`EncoderClassifier.from_encoder`].
            tasks (`dict[str, dict]`), active_task (`str`, *optional*): As in [`MultiTaskClassifierConfig`].
            **settings: Of [`EncoderClassifierConfig`], such as `layers`; labels belong in `tasks`.

        Returns:
            `MultiTaskClassifier`: In evaluation mode, in the type of the encoder's weights; the heads follow torch's
            seed.

        Raises:
            ValueError: As [`MultiTaskClassifierConfig`], and for a setting that is not known.
            OSError: There is no such model.
        """
        for name in (*_LABELS, "num_labels"):
            if name in settings:
                raise ValueError(f"{name} is given, but each task has its own: give it in tasks.")
        _settle_tasks(tasks)
        single = EncoderClassifier.from_encoder(name_or_path, trust_remote_code, **settings)
        shared = {name: getattr(single.config, name) for name in _SHARED}
        config = MultiTaskClassifierConfig(tasks=tasks, active_task=active_task, name_or_path=name_or_path, **shared)
        return cls(config, single.encoder).to(single.dtype).eval()

    def for_task(self, name: str) -> EncoderClassifier:
        """A model of one task, to fine-tune further or to publish by itself.

        Args:
            name (`str`): Of the task.

        Returns:
            `EncoderClassifier`: With copies of the encoder and of that task's head, so that this model, and those of
            other tasks, stay as they are; in the same mode.

        Raises:
            ValueError: There is no such task.

        Paper: Sun et al. 2019, section 5.5: fine-tuned on each task after all of them.
        """
        task, shared = self.config.task(name), {key: getattr(self.config, key) for key in _SHARED}
        labels = {key: task[key] for key in ("id2label", "problem_type")}
        labels["label2id"] = {label: index for index, label in task["id2label"].items()}
        config = EncoderClassifierConfig(**shared, **labels, name_or_path=self.config.name_or_path)
        single = EncoderClassifier(config, copy.deepcopy(self.encoder)).to(self.dtype)
        own = f"heads.{name}."
        weights = {key.replace(own, "classifier.", 1): weight for key, weight in self.state_dict().items()}
        single.load_state_dict({key: weight for key, weight in weights.items() if not key.startswith("heads.")})
        return single.train(self.training)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        features: torch.Tensor | None = None,
        chunk_counts: torch.Tensor | None = None,
        task_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Classify B texts of one task.

        Args:
            task_ids (`torch.Tensor`, *optional*): (B,) the task's `task_id`, B times; the active task if None.
            labels (`torch.Tensor`, *optional*): As in [`EncoderClassifier`], of this task.
            All others as in [`EncoderClassifier`].

        Returns:
            `SequenceClassifierOutput`: `logits`, (B, labels of the task), and with labels `loss`, by the task's
            `problem_type`.

        Raises:
            ValueError: As [`EncoderClassifier`]; rows of several tasks, or of one that is not there.
        """
        name = self._task_of(task_ids)
        given = (input_ids, attention_mask, token_type_ids, inputs_embeds, features, chunk_counts)
        logits = self.heads[name](super().forward(*given, return_dict=True, **kwargs).logits)
        loss = None if labels is None else self._loss(labels, logits, name)
        return SequenceClassifierOutput(loss=loss, logits=logits)

    def _task_of(self, task_ids: torch.Tensor | None) -> str:
        if task_ids is None:
            return self.config.active_task
        found, names = task_ids.unique().tolist(), list(self.config.tasks)
        if len(found) != 1:
            raise ValueError(
                f"The batch has rows of several tasks (task_ids {found}), but is answered by one head: train on "
                "MultiTaskRows with train_sampling_strategy='sequential' and the rows of an optimizer step as "
                "block_size, and evaluate each task by itself."
            )
        if not 0 <= found[0] < len(names):
            raise ValueError(f"task_ids is {found[0]}, but the tasks are 0 to {len(names) - 1}: {', '.join(names)}.")
        return names[found[0]]

    def _loss(self, labels: torch.Tensor, logits: torch.Tensor, name: str) -> torch.Tensor:
        task = self.config.tasks[name]
        settings = SimpleNamespace(num_labels=logits.shape[-1], problem_type=task["problem_type"])
        loss = self.loss_function(labels, logits, settings)
        if task["problem_type"] is None:
            task["problem_type"] = settings.problem_type
            self.config.follow_active_task()  # which may be this one
        return loss


MultiTaskClassifierConfig.register_for_auto_class()
MultiTaskClassifier.register_for_auto_class("AutoModelForSequenceClassification")
if __name__.startswith("hf_ftstrategies."):  # as in classifier.py
    AutoConfig.register(MultiTaskClassifierConfig.model_type, MultiTaskClassifierConfig)
    AutoModelForSequenceClassification.register(MultiTaskClassifierConfig, MultiTaskClassifier)
