"""Curves: what models learned, from their ``history.jsonl``, and how often words occur.

All of it needs matplotlib, the extra ``plot``.
"""

import json
import os
from pathlib import Path

import numpy as np

from .errors import ModelError, SettingsError

FORMATS = (".png", ".svg")


def read_history(folder):
    """The records of a model's history.jsonl: one dict an epoch.

    Raises ModelError if there is none or a line is no record.
    """
    path = Path(folder) / "history.jsonl"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from None
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            record["epoch"], record["train_loss"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise ModelError(f"{path}:{number}: is not the record of an epoch") from None
        records.append(record)
    if not records:
        raise ModelError(f"{path} is empty; there is nothing to draw")
    return records


def draw(folders, out):
    """Draw the perplexity of each epoch of the models in ``folders`` to the file ``out``.

    Solid: validation; dashed: training (the running mean of the epoch, with dropout on), where
    the loss is the exact one. Raises SettingsError for a name that is neither .png nor .svg, or
    without matplotlib.
    """
    out = check_name(out)
    histories = {str(folder): read_history(folder) for folder in folders}
    figure, axes = _empty()
    for number, (name, records) in enumerate(histories.items()):
        colour, shown = f"C{number}", _shown(name) if len(histories) > 1 else ""
        for key, style, what in (
            ("valid_perplexity", "-o", "validation"),
            ("train_perplexity", "--", "training"),
        ):
            points = [(r["epoch"], r[key]) for r in records if r.get(key) is not None]
            if points:
                label = f"{shown} {what}".strip()
                axes.plot(*zip(*points, strict=True), style, color=colour, label=label, ms=4)
    if not axes.lines:
        raise ModelError(
            "these histories hold no perplexity: train with --valid to have one for a sampled loss"
        )
    axes.set_xlabel("epoch")
    axes.set_ylabel("perplexity")
    axes.set_yscale("log")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    _save(figure, out)


def draw_ranks(frequencies, out, min_counts=()):
    """Draw how often words occur against their rank to the file ``out``, both on log scales.

    frequencies : falling counts, one a word; ``min_counts`` are marked where they cut the curve.
    Raises SettingsError as ``draw`` does.
    """
    out = check_name(out)
    figure, axes = _empty()
    frequencies = np.asarray(frequencies)
    # A step curve needs its corners alone: of a million words seen once, two points.
    edges = np.flatnonzero(np.diff(frequencies, prepend=-1, append=-1))
    ranks = np.unique(np.concatenate([edges[:-1], edges[1:] - 1]))
    axes.plot(ranks + 1, frequencies[ranks])
    for number, least in enumerate(min_counts):
        kept = int(np.count_nonzero(frequencies >= least))
        if kept:
            label = f"min_count {least}: {kept:,} words"
            axes.plot(kept, frequencies[kept - 1], "o", color=f"C{number + 1}", label=label)
    axes.set_xlabel("rank")
    axes.set_ylabel("count")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend()
    _save(figure, out)


def check_name(out):
    """The file to draw to, as a path; a SettingsError unless its kind is known."""
    out = Path(out)
    if out.suffix.lower() not in FORMATS:
        raise SettingsError(f"{out} is neither a {' nor a '.join(FORMATS)} file")
    return out


def _empty():
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SettingsError("plot needs matplotlib; pip install 'fastnplm[plot]'") from None
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    return figure, figure.add_subplot()


def _save(figure, out):
    from matplotlib import rc_context

    fresh = out.with_name(f".{out.name}.{os.getpid()}{out.suffix}")
    try:
        with rc_context({"svg.hashsalt": "fastnplm"}):  # the same curves give the same bytes
            metadata = {"Date": None} if out.suffix.lower() == ".svg" else {}
            figure.savefig(fresh, dpi=150, metadata=metadata)
        os.replace(fresh, out)
    finally:
        fresh.unlink(missing_ok=True)


def _shown(name):
    """A folder's name with the letters that matplotlib's own font has; others escaped."""
    return Path(name).name.encode("latin-1", "backslashreplace").decode("latin-1")
