"""The front matter of a card, checked as the Hub does it."""

import re

import yaml

KINDS = {"base_model": str, "license": str, "tags": list, "datasets": list, "metrics": list}
REQUIRED = [("task", "type"), ("dataset", "type"), ("dataset", "name"), ("metric", "type"), ("metric", "value")]


def metadata_of(card):
    """The front matter of a card, or None."""
    match = re.match(r"---\r?\n(.*?)\r?\n---", card, re.DOTALL)
    return yaml.safe_load(match[1]) if match else None


def check_metadata(card):
    """Errors and warnings as the Hub gives them, for the fields that cards of ours have."""
    try:
        data = metadata_of(card)
    except yaml.YAMLError as error:
        return [{"message": str(error)}], []
    if data is None:
        return [], [{"message": "empty or missing yaml metadata in repo card"}]
    wrong = [
        f'"{key}" must be a {kind.__name__}'
        for key, kind in KINDS.items()
        if not isinstance(data.get(key, kind()), kind)
    ]
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", str(data.get("base_model", "none"))):
        wrong.append('"base_model" must be an id of the Hub')
    for index in data.get("model-index", []):
        for result in index["results"]:
            for metric in result["metrics"]:
                facts = {**result, "metric": metric}
                wrong += [f'"{part}.{key}" is required' for part, key in REQUIRED if key not in facts.get(part, {})]
    return [{"message": message} for message in wrong], []
