"""One command a table row: trains, evaluates, writes JSON; ``report`` prints them all.

python -m bench.papers brown-best --data ../shared/data
python -m bench.papers brown-best --seed 1
python -m bench.papers brown-best --set dropout=0.4 --as try --valid-only
python -m bench.papers ensemble brown-best-seed0 brown-best-seed1
python -m bench.papers ablation
python -m bench.papers defaults brown ptb pku
python -m bench.papers defaults --text train.txt --valid valid.txt --as large
python -m bench.papers report
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def main(argv=None):
    """Run the command ``argv``; returns 0."""
    # Else NumPy's BLAS starts a second pool of threads beside the kernels' own.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from .. import summary
    from . import ablation, defaults, report, rows, run

    parser = argparse.ArgumentParser(
        prog="python -m bench.papers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "row", help=f"{', '.join(rows.ROWS)}, ensemble, ablation, defaults or report"
    )
    parser.add_argument("members", nargs="*", help="of the ensemble: ROW-seedS; or corpora")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the corpora")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--as", dest="name", help="another name for the JSON")
    parser.add_argument("--valid-only", action="store_true", help="leave the test part alone")
    parser.add_argument("--text", type=Path, help="defaults: on this text, with --valid")
    parser.add_argument("--valid", type=Path, help="defaults: its validation text")
    parser.add_argument("--curves", type=Path, help="report: draw the learning curves here")
    parser.add_argument("--readme", type=Path, help="report: put its summary into this file")
    given = parser.parse_args(argv)
    if given.row == "report":
        found = report.read(given.output)
        print(report.markdown(found), end="")
        if given.readme:
            filled = summary.fill_block(
                given.readme.read_text("utf-8"), "papers", report.summary(found)
            )
            given.readme.write_text(filled, "utf-8")
        if given.curves:
            report.draw(found, given.curves)
        return 0
    if given.row == "ablation":
        given.output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            texts = ablation.sample(given.data, folder)
            found = ablation.measure(*texts, threads=given.threads, tell=tell)
        (given.output / "ablation.json").write_text(json.dumps(found, indent=1) + "\n")
        print(ablation.markdown(found), end="")
        return 0
    if given.row == "defaults":
        if (given.text is None) != (given.valid is None):
            parser.error("--text and --valid go together")
        if given.text and given.members:
            parser.error("either corpora by name or --text")
        texts = {given.name or "text": ({"train": given.text, "valid": given.valid}, 3)}
        if not given.text:
            unknown = set(given.members) - set(rows.CORPORA)
            if unknown:
                parser.error(f"no corpus {unknown.pop()}; there are {', '.join(rows.CORPORA)}")
            texts = {name: rows.texts(name, given.data) for name in given.members or rows.CORPORA}
        for name, (files, min_count) in texts.items():
            found = defaults.measure(name, files, min_count, given.output, given.threads, tell=tell)
            print(defaults.markdown(found), end="")
        return 0
    if given.row == "ensemble":
        if not given.members:
            parser.error("ensemble needs the names of its members")
        corpus = rows.ROWS[given.members[0].rsplit("-seed", 1)[0]].corpus
        found = run.ensemble(given.members, corpus, given.data, given.output, given.name)
        print(json.dumps(found["perplexity"], indent=1))
        return 0
    if given.row not in rows.ROWS:
        parser.error(f"no row {given.row}; there are {', '.join(rows.ROWS)}")
    changes = dict(_setting(parser, text) for text in given.set)
    if changes and not given.name:
        parser.error("--set makes another row: give it a name with --as")
    row = rows.ROWS[given.row].changed(changes)
    found = run.run(
        given.name or given.row, row, given.data, given.output, given.seed, given.threads,
        test=not given.valid_only,
    )  # fmt: skip
    print(json.dumps(found["perplexity"], indent=1))
    return 0


def tell(line):
    """Progress goes to standard error."""
    print(line, file=sys.stderr, flush=True)


def _setting(parser, text):
    name, equals, value = text.partition("=")
    if not equals:
        parser.error(f"--set {text}: expected NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


if __name__ == "__main__":
    raise SystemExit(main())
