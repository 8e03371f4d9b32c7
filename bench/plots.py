"""The report's plots: step time against V, share of the roof, tokens a second, perplexity."""

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot


def draw(found, folder):
    """Write the plots that the results have data for into ``folder``; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    sections = found.get("sections", {})
    paths = []
    for name, plot in (
        ("ladders", _time_against_vocabulary),
        ("steps", _share_of_roof),
        ("losses", _tokens_per_second),
        ("quality", _perplexity),
    ):
        if not sections.get(name):
            continue
        figure, axes = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
        if plot(axes, sections[name]):
            paths.append(folder / f"{plot.__name__.strip('_')}.svg")
            axes.grid(alpha=0.3)
            figure.savefig(paths[-1])
        pyplot.close(figure)
    return paths


def _time_against_vocabulary(axes, ladders):
    series = {}
    for record in ladders.get("vocabulary", []):
        if record["seconds"]:
            loss = record["workload"]["loss"]
            label = record["contender"] + (f" {loss}" if loss != "softmax" else "")
            point = record["workload"]["vocabulary"], record["median"] * 1e3
            series.setdefault(label, []).append(point)
    for label, points in series.items():
        axes.loglog(*zip(*points, strict=True), marker=".", label=label)
    axes.set_xlabel("vocabulary")
    axes.set_ylabel("ms a step")
    axes.legend(fontsize=7)
    return bool(series)


def _share_of_roof(axes, results):
    from .criteria import ratio

    one = [r for r in results if r["threads"] == 1 and r["seconds"]]
    roofs = {r["workload"]["name"]: r for r in one if r["contender"] == "roof"}
    names = [n for n in dict.fromkeys(r["contender"] for r in one) if n != "roof"]
    sizes = list(roofs)
    for place, size in enumerate(sizes):
        by = {r["contender"]: r for r in one if r["workload"]["name"] == size}
        shares = [ratio(by[n], roofs[size])[1] * 100 if n in by else 0 for n in names]
        width = 0.8 / len(sizes)
        axes.barh([i + place * width for i in range(len(names))], shares, width, label=size)
    axes.set_yticks([i + 0.4 for i in range(len(names))], names, fontsize=7)
    axes.axvline(100, color="black", linewidth=0.8)
    axes.set_xlabel("speed of the whole step, % of the three bare products")
    axes.invert_yaxis()
    axes.legend(fontsize=7)
    return bool(sizes)


def _tokens_per_second(axes, results):
    series = {}
    for record in results:
        w = record["workload"]
        if record["seconds"]:
            label = w["loss"] + (f" K={w['negatives']}" if w["loss"] != "softmax" else "")
            series.setdefault(label, []).append((w["vocabulary"], record["tokens_per_second"]))
    for label, points in series.items():
        axes.loglog(*zip(*points, strict=True), marker=".", label=label)
    axes.set_xlabel("vocabulary")
    axes.set_ylabel("tokens a second")
    axes.legend(fontsize=7)
    return bool(series)


def _perplexity(axes, runs):
    for run in runs:
        label = run["loss"] + (f" K={run['negatives']}" if run["negatives"] else "")
        axes.semilogx(*zip(*run["curve"], strict=True), marker=".", label=label)
    axes.set_xlabel("seconds of training")
    axes.set_ylabel("validation perplexity, exact")
    axes.legend(fontsize=7)
    return True


def race(runs, path):
    """Draw the curves of ``bench.race``: exact perplexity against seconds, a line a loss."""
    figure, axes = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    _perplexity(axes, [run | {"curve": [(s, p) for s, _, p in run["curve"]]} for run in runs])
    axes.set_yscale("log")
    axes.grid(alpha=0.3, which="both")
    figure.savefig(path)
    pyplot.close(figure)
