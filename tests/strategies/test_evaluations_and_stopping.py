import pytest
from transformers import TrainerCallback

from hf_ftstrategies import EarlyStopping, EvenEvaluations, StrategyTrainer
from tests.tiny import Script, StopAt, arguments, equal, rows, snapshot, tiny_bert


class Steps(TrainerCallback):
    def __init__(self):
        self.evaluated, self.saved = [], []

    def on_evaluate(self, args, state, control, **kwargs):
        self.evaluated.append(state.global_step)

    def on_save(self, args, state, control, **kwargs):
        self.saved.append(state.global_step)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10, 12])
@pytest.mark.parametrize("save_strategy", ["steps", "no"])
def test_evenly_spaced_and_ending_with_the_last_step(tmp_path, count, save_strategy):
    steps = Steps()
    args = arguments(tmp_path, evaluations=count, save_strategy=save_strategy, num_train_epochs=2)
    StrategyTrainer(tiny_bert(), args, train_dataset=rows(), eval_dataset=rows(8), callbacks=[steps]).train()
    expected = sorted({-(-k * 12 // count) for k in range(1, count + 1)})
    assert len(expected) == count
    assert steps.evaluated == expected
    assert steps.saved == (expected if save_strategy == "steps" else [])


def test_more_evaluations_than_steps_means_every_step():
    assert [EvenEvaluations(10).is_due(step, 4) for step in range(1, 5)] == [True] * 4


@pytest.mark.parametrize("count", [1, 2, 3, 7, 97, 10**15])  # the last would take for ever if each were looked at
@pytest.mark.parametrize("total", [1, 2, 6, 97])
def test_the_last_step_is_evaluated_and_no_more_than_asked(count, total):
    due = [step for step in range(1, total + 1) if EvenEvaluations(count).is_due(step, total)]
    assert due[-1] == total
    assert len(due) == min(count, total)


def stopping(folder, scores, resume=None, stop=None, patience=2):
    args = arguments(
        folder,
        num_train_epochs=3,
        evaluations=18,
        save_strategy="steps",
        early_stopping_patience=patience,
        metric_for_best_model="score",
        load_best_model_at_end=True,
    )
    callbacks = [] if stop is None else [StopAt(stop)]
    trainer = StrategyTrainer(tiny_bert(), args, train_dataset=rows(), eval_dataset=rows(8), callbacks=callbacks)
    trainer.callback_handler.callbacks.insert(0, Script(scores))
    trainer.train(resume_from_checkpoint=resume)
    return trainer


SCORES = [0.1, 0.2, 0.15, 0.3, 0.3, 0.29, *[0.0] * 20]  # best at 4, stop after 6


def test_stops_and_keeps_the_best(tmp_path):
    trainer = stopping(tmp_path, SCORES)
    assert trainer.state.global_step == 6
    assert trainer.state.best_model_checkpoint.endswith("checkpoint-4")


@pytest.mark.parametrize("cut", [3, 5])
def test_patience_survives_a_resume(tmp_path, cut):
    straight = stopping(tmp_path / "straight", SCORES)
    stopping(tmp_path / "cut", SCORES, stop=cut)
    resumed = stopping(tmp_path / "cut", SCORES[cut:], resume=True)
    assert resumed.state.global_step == straight.state.global_step == 6
    assert equal(snapshot(straight.model), snapshot(resumed.model))


def test_a_stopped_run_is_not_resumed(tmp_path):
    stopping(tmp_path, SCORES)
    with pytest.raises(ValueError, match=r"stopped early at step 6 .*checkpoint-4"):
        stopping(tmp_path, SCORES, resume=True)


def on_two_sets(folder, metric):
    args = arguments(
        folder,
        evaluations=3,
        save_strategy="steps",
        load_best_model_at_end=True,
        early_stopping_patience=1,
        metric_for_best_model=metric,
        learning_rate=0.0,
    )
    sets = {"a": rows(8), "b": rows(8, seed=1)}
    trainer = StrategyTrainer(tiny_bert(), args, train_dataset=rows(), eval_dataset=sets)
    trainer.train()
    return trainer


def test_one_of_several_evaluation_sets_decides(tmp_path):
    assert on_two_sets(tmp_path, "a_loss").state.global_step == 4  # nothing moves: the second evaluation is no better


def test_an_unknown_metric_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"metric_for_best_model is 'a_los'.*Did you mean 'eval_a_loss'"):
        on_two_sets(tmp_path, "a_los")


def test_refuses(tmp_path):
    with pytest.raises(ValueError, match="evaluations is 0"):
        arguments(tmp_path, evaluations=0)
    with pytest.raises(ValueError, match="give only one of them"):
        arguments(tmp_path, evaluations=3, eval_strategy="epoch")
    with pytest.raises(ValueError, match="early_stopping_patience is 0"):
        arguments(tmp_path, early_stopping_patience=0)
    with pytest.raises(ValueError, match="needs metric_for_best_model"):
        StrategyTrainer(tiny_bert(), arguments(tmp_path, early_stopping_patience=2), train_dataset=rows())
    with pytest.raises(ValueError, match="eval_strategy='steps'"):
        StrategyTrainer(tiny_bert(), arguments(tmp_path), strategies=[EvenEvaluations(3)], train_dataset=rows())
    assert EarlyStopping(1).state_dict()["waited"] == 0
