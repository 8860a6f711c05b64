import html.parser
import io
import re

import pytest
from rich.console import Console
from scipy import stats

from hf_ftstrategies.evaluation.report import duration, format_summary, headline, write_report
from tests.evaluation.facts import LABELS, plan, results, results_of_seeds

TRICKY = '<b>&"'


def rename(facts, old, new):
    """Facts in which a label has another name."""
    facts["dataset"]["labels"] = [new if label == old else label for label in LABELS]
    for scores in facts["metrics"].values():
        scores["per_class"] = {new if k == old else k: v for k, v in scores["per_class"].items()}
    return facts


class Page(html.parser.HTMLParser):
    """Tags, addresses and text of a page; fails on tags that do not match."""

    def __init__(self, source):
        super().__init__()
        self.open, self.tags, self.addresses, self.text = [], [], [], ""
        self.feed(source)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def page(tmp_path, facts, the_plan):
    return Page(write_report(tmp_path / "report.html", facts, the_plan).read_text(encoding="utf-8"))


@pytest.mark.parametrize("unfreezing", [False, True])
def test_report_holds_the_facts_and_needs_no_network(tmp_path, unfreezing):
    facts, the_plan = results(), plan(unfreezing)
    report = page(tmp_path, facts, the_plan)
    assert len(report.addresses) == 3
    assert all(address.startswith("data:image/png;base64,") for address in report.addresses)
    shown = [
        facts["title"],
        facts["command"],
        "0.960",
        "0.230",
        "majority baseline",
        "3 min 24 s",
        "1,843 MiB",
    ]
    shown += [*LABELS, *facts["dataset"]["notes"], "90.2 %", "torch 2.13.0", "re-initialised"]
    shown += [s[key] for s in the_plan["strategies"] for key in ("class", "paper", "summary")]
    shown += [phase["name"] for phase in the_plan["phases"] if unfreezing]
    assert [fact for fact in shown if fact not in report.text] == []


def test_every_seed_is_reported(tmp_path):
    found = page(tmp_path, results_of_seeds(), plan())
    assert "Over 3 seeds: test accuracy 0.9600 ± 0.0000" in found.text
    assert "0.9500 ± 0.0100" in found.text
    assert "other seeds vary too" not in found.text
    assert len(found.addresses) == 1 + len(page(tmp_path, results(), plan()).addresses)
    console = Console(file=io.StringIO(), width=200)
    console.print(format_summary(results_of_seeds()))
    assert "3 seeds: test accuracy 0.9600 ± 0.0000 (above: seed 2, best on validation)" in console.file.getvalue()


def test_names_are_escaped(tmp_path):
    facts = rename(results(), "sport", TRICKY) | {"title": TRICKY, "command": TRICKY}
    report = page(tmp_path, facts, plan())
    assert report.text.count(TRICKY) == 4
    assert "b" not in report.tags


def test_report_without_classes_strategies_or_history(tmp_path):
    facts = results() | {"confusion_matrix": None, "history": [], "peak_memory_mib": None, "baseline": {}}
    facts["metrics"] = {"validation": {"pearson": 0.81, "loss": 0.6}}
    facts["dataset"]["metric"] = "pearson"
    facts["selected"] = {"step": 8, "metric": "pearson", "value": 0.81}
    report = page(tmp_path, facts, plan() | {"strategies": []})
    assert "0.810" in report.text
    assert "stock Trainer" in report.text
    assert len(report.addresses) == 2


def test_distances_are_drawn_where_they_were_logged(tmp_path):
    facts = results()
    facts["history"] = [{**row, "layer_distance/head": 0.1, "layer_update/head": 0.1} for row in facts["history"]]
    report = page(tmp_path, facts, plan())
    assert len(report.addresses) == 4
    assert "the weights it began with" in report.text


def test_missing_facts_are_named(tmp_path):
    facts = results()
    del facts["history"], facts["time"]
    with pytest.raises(ValueError, match="results lack history, time"):
        write_report(tmp_path / "report.html", facts, plan())
    with pytest.raises(ValueError, match=r"plan lack model, .* found nothing"):
        write_report(tmp_path / "report.html", results(), {})


def test_headline_is_test_accuracy_beside_the_baseline():
    best = headline(results())
    assert (best["split"], best["metric"], best["value"], best["baseline"]) == (
        "test",
        "accuracy",
        0.96,
        0.23,
    )
    # Wilson's interval: the shares p whose distance to 480 / 500 is z standard errors of p.
    z = stats.norm.ppf(0.975)
    for p in best["interval"]:
        assert (0.96 - p) ** 2 == pytest.approx(z**2 * p * (1 - p) / 500)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (8.34, "8.3 s"), (59.98, "1 min 00 s"), (203.5, "3 min 24 s"), (7512, "2 h 05 min")],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_summary_shows_scores_and_takes_labels_literally():
    console = Console(file=io.StringIO(), width=100)
    console.print(format_summary(rename(results(), "sport", "[red]")))
    text = console.file.getvalue()
    assert re.search(r"accuracy +0\.9480 +0\.9600", text)
    assert re.search(r"macro F1 +0\.9467 +0\.9588", text)
    assert re.search(r"majority baseline .* 0\.2300", text)
    assert re.search(r"\[red\] +1\.000 +1\.000 +1\.000 +115", text)
    assert "time 3 min 24 s (training 2 min 28 s, evaluation 41.9 s), peak memory 1,843 MiB" in text
