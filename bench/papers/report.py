"""What the rows gave, beside the papers' figures and KenLM's; and their learning curves."""

import json
from pathlib import Path

from . import rows

# How README names a corpus, and what others printed for feed-forward networks on the same text.
TITLES = {
    "brown": ("Brown", "–"),
    "ptb": ("PTB", "140.2, with Kneser-Ney 116.7 (Mikolov 2012)"),
    "pku": ("People's Daily, January 1998", "–"),
}


def read(folder):
    """What the rows wrote into a folder, by name."""
    found = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))]
    return [record for record in found if "row" in record]


def markdown(found):
    """A table a corpus, a line a row and seed; Bengio's ratio. Runs without test are left out."""
    text = []
    for corpus in rows.CORPORA:
        lines = [r for r in found if r["corpus"] == corpus and _test(r) is not None]
        if not lines:
            continue
        kenlm = rows.KENLM[corpus]
        text += [
            f"### {corpus}: test perplexity",
            "",
            f"KenLM: 3-gram {kenlm[3][1]:.2f}, 5-gram {kenlm[5][1]:.2f}. Ours: {_ours(lines)}.",
            "",
            "| row | seed | network | paper | with Kneser-Ney | paper | valid | epoch | CPU min |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        text += [_line(record) for record in lines]
        text += ["", *_ratio(lines)]
    return "\n".join(text) + "\n"


def summary(found):
    """A few lines for README: the best row of each corpus beside KenLM and what is published."""
    text = [
        "| test perplexity | KenLM, 5-gram | network | with our Kneser-Ney | published |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for corpus, (title, published) in TITLES.items():
        record = next(
            (r for r in found if r["row"] == f"{corpus}-best" and not r.get("seed")), None
        )
        if record:
            best, size = record["perplexity"], record["vocabulary"]
            text.append(
                f"| {title}, V = {size:,} | {rows.KENLM[corpus][5][1]:.2f}"
                f" | {best['network']['test']:.2f} | {best['mixture context']['test']:.2f}"
                f" | {published} |"
            )
    return "\n".join(text) + "\n\nMade by `python -m bench.papers report --readme README.md`.\n"


def _test(record):
    network = record["perplexity"].get("network") or record["perplexity"].get("ensemble")
    return network.get("test")


def _ours(lines):
    for record in lines:
        found = record["perplexity"]
        if "kneser-ney 5" in found:
            return ", ".join(f"{n}-gram {found[f'kneser-ney {n}']['test']:.2f}" for n in (3, 5))
    return "not run"


def _line(record):
    found, row = record["perplexity"], rows.ROWS.get(record["row"])
    network = found.get("network") or found["ensemble"]
    cells = [
        record["row"],
        record.get("seed", f"{len(record.get('members', []))} models"),
        f"**{network['test']:.2f}**",
        _figure(row and row.published),
        f"**{found['mixture context']['test']:.2f}**",
        _figure(row and row.published_mixture),
        f"{network['valid']:.2f}",
        f"{record['best_epoch']} of {len(record['epochs'])}" if "epochs" in record else "–",
        f"{record['cpu_seconds'] / 60:.0f}" if "cpu_seconds" in record else "–",
    ]
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _figure(value):
    return "–" if not value else f"{value:g}"


def _ratio(lines):
    """Bengio's claim: MLP1 is to the Kneser-Ney trigram as 268 to 323."""
    text = []
    for record in lines:
        if record["row"] in ("MLP1", "MLP1-defaults"):
            found = record["perplexity"]
            ratio = found["network"]["test"] / found["kneser-ney 3"]["test"]
            line = f"{_name(record)}, to the Kneser-Ney trigram: {ratio:.2f}"
            text += [f"{line}; in the paper 268/323 = 0.83.", ""]
    return text


def draw(found, out):
    """Validation perplexity after each epoch of seed 0, a line a row, to the file ``out``."""
    from matplotlib.figure import Figure

    found = [record for record in found if not record.get("seed")]
    corpora = [c for c in rows.CORPORA if any(r["corpus"] == c and "epochs" in r for r in found)]
    figure = Figure(figsize=(4.5 * max(len(corpora), 1), 4), layout="constrained")
    for place, corpus in enumerate(corpora):
        axes = figure.add_subplot(1, len(corpora), place + 1)
        for record in found:
            if record["corpus"] == corpus and "epochs" in record:
                points = [(e["epoch"], e["valid_perplexity"]) for e in record["epochs"]]
                axes.plot(*zip(*points, strict=True), marker=".", label=_name(record))
        axes.axhline(rows.KENLM[corpus][5][0], color="black", linewidth=0.8, label="KenLM 5-gram")
        axes.set(title=corpus, xlabel="epoch", ylabel="validation perplexity", yscale="log")
        axes.legend(fontsize=7)
    figure.savefig(out)


def _name(record):
    return f"{record['row']}, seed {record['seed']}"
