"""Metrics of further pre-training, through a real `Trainer.evaluate`, against a loop over single texts."""

import math

import numpy as np
import pytest
import torch
from transformers import EvalPrediction, Trainer, TrainingArguments

from hf_ftstrategies.evaluation.language_modeling import compute_pretraining_metrics, preprocess_logits_for_metrics
from hf_ftstrategies.modeling.masked_positions import predict_masked_only
from tests.modeling.architectures import tiny_pretraining_model


def texts(pairs, count=7):
    """Seven texts of ten tokens with one to five masked words each."""
    rng = np.random.default_rng(0)
    rows = []
    for index in range(count):
        places = np.sort(rng.choice(10, size=index % 5 + 1, replace=False)).tolist()
        row = {
            "input_ids": rng.integers(3, 100, 10).tolist(),
            "masked_positions": places,
            "labels": rng.integers(3, 100, len(places)).tolist(),
        }
        rows.append({**row, "next_sentence_label": index % 2} if pairs else row)
    return rows


def collate(rows):
    batch = {"input_ids": torch.tensor([row["input_ids"] for row in rows])}
    if "next_sentence_label" in rows[0]:
        batch["next_sentence_label"] = torch.tensor([row["next_sentence_label"] for row in rows])
    for name, padding in (("masked_positions", 0), ("labels", -100)):
        lists = [torch.tensor(row[name]) for row in rows]
        batch[name] = torch.nn.utils.rnn.pad_sequence(lists, batch_first=True, padding_value=padding)
    return batch


def collate_whole(rows):
    """The same with a label for each token."""
    batch = collate(rows)
    labels = torch.full_like(batch["input_ids"], -100)
    for row, line in zip(rows, labels, strict=True):
        line[row["masked_positions"]] = torch.tensor(row["labels"])
    del batch["masked_positions"]
    return {**batch, "labels": labels}


def evaluate(model, rows, collator, folder, **settings):
    args = TrainingArguments(
        str(folder),
        per_device_eval_batch_size=3,
        use_cpu=True,
        remove_unused_columns=False,
        report_to="none",
        disable_tqdm=True,
        **settings,
    )
    trainer = Trainer(
        model,
        args,
        eval_dataset=rows,
        data_collator=collator,
        preprocess_logits_for_metrics=preprocess_logits_for_metrics,
        compute_metrics=compute_pretraining_metrics,
    )
    return trainer.evaluate()


@torch.no_grad()
def one_by_one(model, rows):
    """The metrics of a loop over texts, in float64."""
    words, pairs = [], []
    for row in rows:
        outputs = model.double()(input_ids=torch.tensor([row["input_ids"]]))
        logits = outputs.prediction_logits if "next_sentence_label" in row else outputs.logits
        words += [(logits[0, place], word) for place, word in zip(row["masked_positions"], row["labels"], strict=True)]
        if "next_sentence_label" in row:
            pairs.append((outputs.seq_relationship_logits[0], row["next_sentence_label"]))
    model.float()
    metrics = {}
    for name, scored in (("mlm", words), ("nsp", pairs)):
        if scored:
            metrics[f"eval_{name}_loss"] = np.mean([-logits.log_softmax(0)[label].item() for logits, label in scored])
            metrics[f"eval_{name}_accuracy"] = np.mean([logits.argmax().item() == label for logits, label in scored])
    return {**metrics, "eval_perplexity": math.exp(metrics["eval_mlm_loss"])}


@pytest.mark.parametrize("masked_only", [True, False])
@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_evaluate(name, masked_only, tmp_path):
    """Batches of 3, 3 and 1 texts, with different numbers of masked words."""
    model, rows = tiny_pretraining_model(name, torch.float32), texts(pairs=name == "bert")
    with torch.no_grad():  # some hits
        model.get_output_embeddings().bias[rows[2]["labels"][0]] += 50
    expected = one_by_one(model, rows)
    assert 0 < expected["eval_mlm_accuracy"] < 1
    predict_masked_only(model)
    found = evaluate(model, rows, collate if masked_only else collate_whole, tmp_path)
    assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-5)
    assert {key for key in found if key.startswith(("eval_mlm", "eval_nsp", "eval_perp"))} == set(expected)
    assert found["eval_loss"] != pytest.approx(found["eval_mlm_loss"])  # a mean over batches


def test_pairs_without_a_label_do_not_count():
    logits = torch.tensor([[0.0, 2.0], [3.0, 0.0], [0.0, 1.0]])
    words = (torch.zeros(3, 1, 5), torch.zeros(3, 1, dtype=torch.long))
    labels = (words[1], torch.tensor([1, -100, 0]))
    scores = preprocess_logits_for_metrics((words[0], logits), labels)
    prediction = EvalPrediction(tuple(s.numpy() for s in scores), tuple(label.numpy() for label in labels))
    metrics = compute_pretraining_metrics(prediction)
    assert metrics["nsp_accuracy"] == 0.5
    assert metrics["nsp_loss"] == pytest.approx((math.log1p(math.exp(-2)) + math.log1p(math.e)) / 2)
    assert (metrics["mlm_loss"], metrics["perplexity"]) == pytest.approx((math.log(5), 5))


def test_without_labels_of_pairs_their_logits_are_left_out():
    """`label_names=["labels"]`, where a model has a next-sentence head that does not train."""
    scores = preprocess_logits_for_metrics((torch.zeros(2, 3, 5), torch.zeros(2, 2)), torch.zeros(2, 3).long())
    assert [tuple(score.shape) for score in scores] == [(2, 3), (2, 3)]


def test_half_precision_logits_are_scored_in_float32():
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0)).bfloat16()
    _, nll = preprocess_logits_for_metrics(logits, torch.ones(2, 3, dtype=torch.long))
    torch.testing.assert_close(nll, -logits.float().log_softmax(-1)[..., 1])


def test_a_hopeless_model_has_infinite_perplexity():
    labels = np.zeros((1, 1), dtype=int)
    prediction = EvalPrediction((np.zeros((1, 1)), np.full((1, 1), 1e4)), labels)
    assert compute_pretraining_metrics(prediction)["perplexity"] == math.inf


def test_errors():
    labels = np.full((2, 3), -100)
    scores = (np.zeros((2, 3)), np.zeros((2, 3)))
    with pytest.raises(ValueError, match="Not one masked word"):
        compute_pretraining_metrics(EvalPrediction(scores, labels))
    with pytest.raises(ValueError, match="preprocess_logits_for_metrics"):
        compute_pretraining_metrics(EvalPrediction(np.zeros((2, 3, 5)), labels))
