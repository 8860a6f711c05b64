import re

import pytest
from huggingface_hub import ModelCard

from hf_ftstrategies.hub.card import write_card
from tests.evaluation.facts import LABELS, plan, results, results_of_seeds

BASE = "sentence-transformers/all-MiniLM-L6-v2"


def card(tmp_path, facts=None, the_plan=None, base_model=BASE, **options):
    path = write_card(tmp_path / "README.md", facts or results(), the_plan or plan(True), base_model, **options)
    return ModelCard.load(path)


def test_metadata_is_what_the_hub_reads(tmp_path):
    data = card(tmp_path, license="apache-2.0").data.to_dict()
    assert data["base_model"] == BASE
    assert data["license"] == "apache-2.0"
    assert data["pipeline_tag"] == "text-classification"
    assert data["library_name"] == "transformers"
    assert data["tags"] == ["hf-ftstrategies", "layerwise_lr", "reinit", "unfreezing"]
    assert data["metrics"] == ["accuracy", "f1", "matthews_correlation"]
    assert not {"datasets", "language"} & data.keys()


def test_the_data_set_with_its_place_on_the_hub_and_its_licence(tmp_path):
    facts = results()
    facts["dataset"] |= {
        "hub_id": "SetFit/bbc-news",
        "hub_config": "all",
        "language": "en",
        "licence": "research *only*",
    }
    written = card(tmp_path, facts)
    data = written.data.to_dict()
    assert (data["datasets"], data["language"]) == (["SetFit/bbc-news"], ["en"])
    for result in data["model-index"][0]["results"]:
        assert (result["dataset"]["type"], result["dataset"]["config"]) == ("SetFit/bbc-news", "all")
    assert "- licence of BBC News: research \\*only\\*\n" in written.text


def test_data_sets_of_several_tasks_before_or_in_the_model(tmp_path):
    tasks = {
        name: {"dataset": {"name": name, "hub_id": hub_id, "language": language, "licence": "CC0 1.0"}}
        | {"metric": "accuracy", "metrics": results()["metrics"], "baseline": results()["baseline"]}
        | {"rows": {"train": 40}}
        for name, hub_id, language in (("a", "user/a", "en"), ("b", "user/b", "ko"), ("c", "user/own", "ko"))
    }
    together = {"tasks": tasks, "steps": 8, "learning_rate": 1e-4, "sampling": "square_root"}
    facts = {**results(), "multitask": together}
    facts["dataset"] |= {"hub_id": "user/own", "language": "en"}
    data = card(tmp_path, facts).data.to_dict()
    assert data["datasets"] == ["user/own", "user/a", "user/b"]
    assert data["language"] == ["en", "ko"]
    (index,) = data["model-index"]
    assert {result["dataset"]["type"] for result in index["results"]} == {"user/own"}
    the_plan = plan()
    the_plan["model"]["class"] = "MultiTaskClassifier"
    with_heads = card(tmp_path, {**results(), "tasks": tasks}, the_plan)
    (index,) = with_heads.data.to_dict()["model-index"]
    where = [(result["dataset"]["name"], result["dataset"]["type"]) for result in index["results"]]
    assert where[::2] == [("a", "user/a"), ("b", "user/b"), ("c", "user/own")]
    assert with_heads.text.count("CC0 1.0") == 3


def test_model_index_has_every_metric_with_task_and_dataset(tmp_path):
    (index,) = card(tmp_path).data.to_dict()["model-index"]
    assert [result["dataset"]["split"] for result in index["results"]] == ["validation", "test"]
    for result, (_, scores) in zip(index["results"], results()["metrics"].items(), strict=True):
        assert result["task"]["type"] == "text-classification"
        assert result["dataset"]["name"] == "BBC News"
        assert result["dataset"]["type"] == "bbc_news"
        assert {metric["name"]: metric["value"] for metric in result["metrics"]} == {
            "accuracy": scores["accuracy"],
            "macro F1": scores["macro_f1"],
            "Matthews correlation": scores["matthews_correlation"],
        }


def test_text_holds_the_facts(tmp_path):
    facts, the_plan = results(), plan(True)
    text = card(tmp_path, facts, the_plan).text
    shown = [f"# {facts['title']}", "**Test accuracy 0.960**", "0.230", "AutoModelForSequenceClassification"]
    shown += [facts["command"], "No license was stated", "recall 0.944", *LABELS, *facts["dataset"]["notes"]]
    shown += [strategy["summary"] for strategy in the_plan["strategies"]]
    assert [fact for fact in shown if fact not in text] == []


def test_the_published_number_stands_beside(tmp_path):
    assert "Published" not in card(tmp_path).text
    text = card(tmp_path, {**results(), "published": "test error 5.40 % with bert-base-uncased"}).text
    assert "Published, for comparison: test error 5.40 % with bert-base-uncased." in text


def test_mean_and_spread_over_seeds(tmp_path):
    assert "over seeds" not in card(tmp_path).text.lower()
    text = card(tmp_path, results_of_seeds()).text
    assert "Over 3 seeds: 0.9600 ± 0.0000 (mean and standard deviation), 0.9600 to 0.9600." in text
    assert "the scores of this model, from seed 2, the best of 3 on validation" in text
    assert "| accuracy | 0.9500 ± 0.0100 | 0.9600 ± 0.0000 |" in text
    assert "| 1 | 0.9400 | 0.9600 |\n| 2 | 0.9600 | 0.9600 |\n| 3 | 0.9500 | 0.9600 |" in text
    assert "3 seeds on one split" in text
    assert "One run with one seed" not in text
    assert "no test split" not in text
    facts = results_of_seeds()
    for metrics in (facts["metrics"], facts["seeds"]["metrics"], *(run["metrics"] for run in facts["seeds"]["runs"])):
        del metrics["test"]
    assert "the results are on validation, which also chose the weights and the seed." in card(tmp_path, facts).text


def test_a_model_with_code_is_loaded_as_such(tmp_path):
    code = "trust_remote_code=True"
    assert code not in card(tmp_path).text
    the_plan = plan()
    the_plan["model"]["class"] = "TheirClassifier"
    text = card(tmp_path, {**results(), "has_code": True}, the_plan).text
    assert text.count(code) == 2
    assert "hf_ftstrategies import" not in text
    the_plan["model"]["class"] = "EncoderClassifier"
    assert "from hf_ftstrategies import EncoderClassifier  #" in card(tmp_path, results(), the_plan).text


@pytest.mark.parametrize(("front", "back"), [(14, 0), (0, 14), (4, 10)])
def test_how_a_text_is_read(tmp_path, front, back):
    reading = {"max_length": 16, "limit": 14, "front": front, "back": back}
    text = card(tmp_path, {**results(), "has_code": True, "reading": reading}).text
    kept = " and ".join([f"the first {front}"] * (front > 0) + [f"the last {back}"] * (back > 0))
    assert f"It reads a text as the training did: of one with more than 14 tokens {kept}." in text
    whole = card(tmp_path, {**results(), "has_code": True, "reading": {**reading, "limit": None}}).text
    assert "It reads a text as the training did: all of it." in whole


def test_energy_where_the_machine_counts_it(tmp_path):
    assert " Wh " not in card(tmp_path).text
    text = card(tmp_path, {**results(), "energy_watt_hours": {"cpu": 1.25, "gpu": 2.0}}).text
    assert "about 3.25 Wh by the counters of the machine (cpu and gpu)" in text


def test_tables_are_whole(tmp_path):
    facts = results()
    facts["metrics"]["test"]["per_class"] = {'<b>&"|`x`\n': facts["metrics"]["test"]["per_class"]["sport"]}
    text = card(tmp_path, facts).text
    assert '| &lt;b&gt;&amp;"\\|\\`x\\` | 1.000 |' in text
    blocks = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    assert len(blocks) == 6
    for block in blocks:
        columns = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(columns) == 1


@pytest.mark.parametrize(
    "command",
    [
        "python /home/jane/run.py --out=/srv/jane/out",
        "python 'C:\\Users\\jane\\run.py' --out file:///home/jane/out/ --data ~/jane/data",
        "HOME=/home/jane:/opt/jane/x python run.py",
    ],
)
def test_no_local_paths(tmp_path, command):
    facts, the_plan = results(), plan()
    facts["command"] = command
    facts["dataset"]["notes"] = ["Read from /home/jane/data/bbc."]
    the_plan["strategies"][0]["settings"] = {"schedule": "/home/jane/schedule.yaml"}
    written = card(tmp_path, facts, the_plan, base_model="/home/jane/models/mini/")
    assert "Read from bbc." in written.text
    assert "schedule = schedule.yaml" in written.text
    assert re.search(r"jane/|jane\\|/home|/tmp|Users", str(written)) is None


def test_relative_paths_addresses_and_fractions_stay(tmp_path):
    facts = results()
    facts["command"] = "python recipes/bbc.py --out ./out ../x https://hf.co/a/b and/or 1/2"
    assert facts["command"] in card(tmp_path, facts).text


@pytest.mark.parametrize("base_model", ["/models/mini", "./models/mini", "a/b/mini", "models/mini"])
def test_a_local_base_model_is_no_hub_id(tmp_path, monkeypatch, base_model):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models/mini").mkdir(parents=True)
    written = card(tmp_path, base_model=base_model)
    assert written.data.base_model is None
    assert "\nmini, fine-tuned on BBC News" in written.text


def test_card_of_a_regression_without_strategies(tmp_path):
    facts = results() | {"baseline": {}}
    facts["metrics"] = {"test": {"spearman": 0.81, "loss": 0.6}}
    facts["dataset"]["metric"] = "spearman"
    facts["selected"] = {"step": 8, "metric": "spearman", "value": 0.82}
    facts["dataset"] |= {"labels": [], "truncated_share": {}}
    written = card(tmp_path, facts, plan() | {"strategies": []})
    assert written.data.eval_results[0].metric_type == "spearmanr"
    assert "**Test spearman 0.810**" in written.text
    assert "stock Trainer" in written.text
    assert "labels, also a text" not in written.text


def test_missing_facts_are_named(tmp_path):
    with pytest.raises(ValueError, match="results lack recipe"):
        write_card(tmp_path / "README.md", {}, plan(), BASE)
