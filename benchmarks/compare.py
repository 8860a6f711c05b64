"""Means over seeds, and differences between variants that saw the same seeds."""

from __future__ import annotations

from collections.abc import Mapping

from scipy import stats


def mean_and_spread(scores: Mapping[int, float]) -> str:
    """Mean and sample standard deviation over the seeds."""
    values = list(scores.values())
    spread = f" ± {stats.tstd(values):.4f}" if len(values) > 1 else ""
    return f"{sum(values) / len(values):.4f}{spread}"


def paired_difference(scores: Mapping[int, float], reference: Mapping[int, float]) -> str:
    """Mean difference over the seeds that both have, with the p of a paired t-test; empty for fewer than two.

    Args:
        scores (`Mapping[int, float]`), reference (`Mapping[int, float]`): By seed.
    """
    differences = [scores[seed] - reference[seed] for seed in scores if seed in reference]
    if len(differences) < 2:
        return ""
    mean = sum(differences) / len(differences)
    p = stats.ttest_1samp(differences, 0).pvalue if len(set(differences)) > 1 else float(mean == 0)
    return f"{mean:+.4f} (p {'< 0.01' if p < 0.005 else f'= {p:.2f}'})"


def as_table(title: str, scores: Mapping[str, Mapping[int, float]], reference: str, metric: str = "accuracy") -> str:
    """Markdown, one line a variant: seeds, mean and spread, difference to one of them.

    Args:
        title (`str`): Above the variants.
        scores (`Mapping[str, Mapping[int, float]]`): By variant, then by seed.
        reference (`str`): The variant that the others are compared with.
        metric (`str`, *optional*, defaults to `"accuracy"`): What was measured.
    """
    lines = [f"| {title} | seeds | {metric} | difference to {reference} (paired t-test) |", "|---|---|---|---|"]
    for variant, found in scores.items():
        difference = "" if variant == reference else paired_difference(found, scores.get(reference, {}))
        lines.append(f"| {variant} | {len(found)} | {mean_and_spread(found)} | {difference} |")
    return "\n".join(lines)
