"""Turn the suite's JSON into Markdown tables and plots: ``python -m bench.report FILE``."""

import argparse
import json
import statistics
from pathlib import Path

from . import criteria, summary


def markdown(found):
    """The whole report as Markdown, from what ``python -m bench`` wrote."""
    sections = found.get("sections", {})
    parts = [_machine(found), _goals(sections, found.get("peaks", {}))]
    parts += [_steps(sections[name], name) for name in ("steps", "sampled") if name in sections]
    parts += [
        render(sections[name])
        for name, render in (
            ("threads", _threads),
            ("optimizers", _optimizers),
            ("memory", _memory),
            ("parts", _parts),
            ("kernels", _kernels),
            ("ladders", _ladders),
            ("losses", _losses),
            ("sharing", _sharing),
            ("quality", _quality),
            ("endtoend", _endtoend),
            ("prepare", _prepare),
            ("feed", _feed),
        )
        if name in sections
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(head, rows):
    """A Markdown table; all columns but the first are right-aligned."""
    lines = [" | ".join(head), " | ".join(["---"] + ["---:"] * (len(head) - 1))]
    lines += [" | ".join(str(cell) for cell in row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def sizes(workload):
    """A workload's sizes in words."""
    w = workload
    text = f"V={w['vocabulary']:,} M={w['dim']} H={w['hidden']} N={w['context']} B={w['batch']}"
    if w["loss"] != "softmax":
        text += f" K={w['negatives']}"
        text += f", noise shared by {w['shared']}" if w["shared"] > 1 else ""
    return text


def _machine(found):
    m, peaks = found.get("machine", {}), found.get("peaks", {})
    lines = ["## Machine", ""]
    caches = ", ".join(f"{level} {size}" for level, size in m.get("caches", {}).items())
    native = m.get("native")
    chosen = native.get("instruction_set") if isinstance(native, dict) else native
    versions = [f"{name} {version}" for name, version in m.get("versions", {}).items() if version]
    lines += [
        f"{m.get('processor')}, {m.get('cores')} cores, {caches};"
        f" {' '.join(m.get('instruction_sets', []))}; native kernels: {chosen}; BLAS"
        f" {m.get('blas')}; Python {m.get('python')}, {', '.join(versions)};"
        f" commit {m.get('commit')}, {m.get('date')} UTC."
    ]
    apart = [
        f"{name} {stamp['date']}, commit {stamp['commit']}"
        for name, stamp in found.get("measured", {}).items()
        if stamp["date"] != m.get("date")
    ]
    if apart:
        lines.append(f"Sections of other runs: {'; '.join(apart)}.")
    if peaks.get("float32_flops"):
        bf16 = peaks.get("bf16_flops")
        lines.append(
            f"One thread at most: {peaks['float32_flops'] / 1e9:.0f} Gflop/s float32,"
            + (f" {bf16 / 1e9:.0f} bfloat16," if bf16 else "")
            + f" {peaks['modify_memory'] / 1e9:.0f} GB/s read-modify-write in memory,"
            f" {peaks['modify_cache'] / 1e9:.0f} in cache."
        )
    return "\n".join(lines)


def _goals(sections, peaks):
    results = sections.get("steps", []) + sections.get("sampled", [])
    rows = []
    for goal in criteria.GOALS:
        found = goal.measured(results)
        if found is None:
            continue
        low, middle, high = found
        what = f"{goal.size}: {goal.subject} against {goal.peer}"
        most = goal.most(results, peaks)
        bound = f"{most:.2f}" if most else ""
        spread = f"{low:.2f}..{high:.2f}"
        rows.append((what, *_against(goal.needed, goal.aim, middle), spread, bound))
    for what, needed, aim, middle in criteria.others(sections):
        if middle is not None:
            rows.append((what, *_against(needed, aim, middle), "", ""))
    if not rows:
        return ""
    head = ("times as fast", "needed", "aim", "measured", "", "quartiles", "at the peak")
    note = (
        "\n\nAt the peak: what the ratio would be if the step were the three products of the exact"
        " output layer alone, at the multiply-add peak measured in this run. No float32 (or"
        " bfloat16) step can be faster."
    )
    return "## Goals\n\n" + table(head, rows) + note


def _against(needed, aim, middle):
    verdict = "reached" if middle >= needed else "**short**"
    if aim and middle >= aim:
        verdict = "aim reached"
    return f"{needed:.2f}", f"{aim:.2f}" if aim else "", f"{middle:.2f}", verdict


def _steps(results, title):
    heading = {"steps": "## Whole steps, exact softmax", "sampled": "## Whole steps, sampled loss"}
    parts = [heading[title]]
    groups = {}
    for record in results:
        w = record["workload"]
        groups.setdefault((w["name"], w["shared"], record["threads"]), []).append(record)
    for (_, _, threads), records in groups.items():
        peer = next((r for r in records if r["contender"] == "roof" and r["seconds"]), None)
        rows = []
        for record in records:
            if not record["seconds"]:
                rows.append((record["contender"], "", "", "", record["unavailable"]))
                continue
            low, high = record["quartiles"][0] * 1e3, record["quartiles"][1] * 1e3
            share = f"{criteria.ratio(record, peer)[1]:.0%}" if peer else ""
            rows.append(
                (record["contender"], f"{record['median'] * 1e3:.2f}", f"{low:.2f}..{high:.2f}",
                 f"{record['tokens_per_second']:,.0f}", share)
            )  # fmt: skip
        what = f"{sizes(records[0]['workload'])}, {threads} thread{'s' if threads > 1 else ''}"
        head = ("", "ms", "quartiles", "tokens/s", "speed of the roof" if peer else "")
        parts.append(f"### {records[0]['workload']['name']}: {what}\n\n{table(head, rows)}")
    return "\n\n".join(parts)


def _threads(results):
    rows = []
    groups = {}
    for record in results:
        key = (record["workload"]["name"], record["contender"])
        groups.setdefault(key, {})[record["threads"]] = record
    for (size, name), by in groups.items():
        if all(r["seconds"] for r in by.values()) and {1, 2} <= set(by):
            one, two = by[1]["median"] * 1e3, by[2]["median"] * 1e3
            gain = criteria.ratio(by[2], by[1])[1]
            rows.append((f"{size}: {name}", f"{one:.2f}", f"{two:.2f}", f"{gain:.2f}"))
    return "## Two threads\n\n" + table(("", "ms, one", "ms, two", "gain"), rows)


def _optimizers(results):
    timed = [record for record in results if record["seconds"]]
    rows = [
        (r["workload"]["optimizer"], f"{r['median'] * 1e3:.1f}",
         f"{1 / criteria.ratio(r, timed[0])[1]:.2f}")
        for r in timed
    ]  # fmt: skip
    return "## Rules, at M\n\n" + table(("", "ms", "times SGD"), rows)


def _memory(found):
    rows = [
        (f"{r['workload']}: {r['contender']}", f"{r['extra_bytes'] / 2**20:,.0f}",
         f"{r['scores_bytes'] / 2**20:,.0f}")
        for r in found
    ]  # fmt: skip
    head = ("", "MiB beyond parameters and libraries", "B x V x 4, MiB")
    return "## Memory of a step\n\n" + table(head, rows)


def _parts(found):
    parts = ["## Share of a step"]
    for name, seconds in found.items():
        whole = sum(seconds.values())
        ordered = sorted(seconds.items(), key=lambda item: -item[1])
        rows = [(part, f"{s * 1e3:.3f}", f"{s / whole:.1%}") for part, s in ordered]
        parts.append(f"### {name}\n\n" + table(("", "ms", "share"), rows))
    return "\n\n".join(parts)


def _kernels(found):
    rows = []
    for r in found:
        seconds, limit = r["median"], r["limit_seconds"]
        work = f"{r['flops'] / seconds / 1e9:.1f}" if r["flops"] else ""
        moved = f"{r['moved'] / seconds / 1e9:.1f}" if r["moved"] else ""
        share = f"{limit / seconds:.0%} of {r['binds']}" if limit else ""
        rows.append((f"{r['kernel']}, {r['module']}", f"{seconds * 1e6:,.1f}", work, moved, share))
    head = ("", "microseconds", "Gflop/s", "GB/s", "share of its limit")
    return f"## Kernels alone, at {found[0]['workload']}\n\n" + table(head, rows) if found else ""


def _ladders(found):
    parts = ["## How the time grows"]
    for dimension, results in found.items():
        names = list(dict.fromkeys(_label(r) for r in results))
        values = list(dict.fromkeys(r["workload"][dimension] for r in results))
        cells = {
            (_label(r), r["workload"][dimension]): f"{r['median'] * 1e3:.2f}"
            for r in results if r["seconds"]
        }  # fmt: skip
        rows = [(f"{v:,}", *(cells.get((n, v), "") for n in names)) for v in values]
        parts.append(f"### {dimension} (ms)\n\n" + table((dimension, *names), rows))
    return "\n\n".join(parts)


def _label(record):
    loss = record["workload"]["loss"]
    return record["contender"] + (f" {loss}" if loss != "softmax" else "")


def _losses(found):
    rows = []
    for r in found:
        w = r["workload"]
        name = w["loss"] + (f", K={w['negatives']}" if w["loss"] != "softmax" else "")
        speed = f"{r['tokens_per_second']:,.0f}" if r["seconds"] else r["unavailable"]
        memory = f"{r['extra_bytes'] / 2**20:,.1f}" if "extra_bytes" in r else ""
        rows.append((f"V={w['vocabulary']:,}: {name}", speed, memory))
    return "## Losses\n\n" + table(("", "tokens/s", "extra MiB"), rows)


def _sharing(found):
    blocks = sorted({r["workload"]["shared"] for r in found})
    by = {(r["workload"]["negatives"], r["workload"]["shared"]): r for r in found}
    rows = [
        (f"K={k}", *(f"{by[k, block]['tokens_per_second']:,.0f}" for block in blocks))
        for k in sorted({r["workload"]["negatives"] for r in found})
    ]
    head = ("tokens/s", *("noise of its own" if b == 1 else f"shared by {b}" for b in blocks))
    size = sizes(found[0]["workload"] | {"shared": 1})
    return f"## Noise shared by a block of examples, {size.rsplit(' K=', 1)[0]}\n\n" + table(
        head, rows
    )


def _quality(found):
    from .losses import seconds_to

    best = [min(p for _, p in r["curve"]) for r in found]
    softmax = next((b for r, b in zip(found, best, strict=True) if r["loss"] == "softmax"), None)
    target = softmax if softmax is not None else max(best)
    rows = []
    for r, lowest in zip(found, best, strict=True):
        name = r["loss"] + (f", K={r['negatives']}" if r["negatives"] else "")
        if r["shared"] and r["shared"] > 1:
            name += f", shared by {r['shared']}"
        reached = [seconds_to(r["curve"], target * factor) for factor in (1.2, 1.1, 1.04)]
        cells = [f"{s:.0f}" if s else "never" for s in reached]
        rows.append((name, r["epochs"], f"{r['curve'][-1][0]:.0f}", f"{lowest:.1f}", *cells))
    head = ("", "epochs", "seconds", "best perplexity", *(f"s to {target * f:.0f}"
            for f in (1.2, 1.1, 1.04)))  # fmt: skip
    size = found[0]["vocabulary"]
    return f"## Perplexity against seconds, V={size:,}\n\n" + table(head, rows)


def _endtoend(found):
    from .endtoend import summary

    rows = [(name, f"{rate:,.0f}", f"{s:.2f}") for name, (rate, s) in summary(found).items()]
    head = ("", "words/s", "fastnplm train against it")
    return "## From corpus to model, negative sampling, one thread\n\n" + table(head, rows)


def _prepare(found):
    from .prepare import speedups

    first, again = speedups(found), speedups(found, "again")
    size, rows = found["text_bytes"], []
    for name, r in found["contenders"].items():
        seconds = [statistics.median(r[which]) for which in ("first", "again")]
        times = [f"{of[name]:.1f}" if name in of else "" for of in (first, again)]
        cells = [f"{s:.3f} ({size / s / 1e6:.0f} MB/s)" for s in seconds]
        peak = f"{r['peak_bytes'] / 2**20:,.0f}" if r["peak_bytes"] else ""
        kept = f"{r['vocabulary']:,}" if r["vocabulary"] else ""
        rows.append((name, cells[0], times[0], cells[1], times[1], peak, f"{r['words']:,}", kept))
    head = ("", "s, first in a process", "times as fast as gensim", "s, second", "times",
            "peak MiB", "words", "vocabulary")  # fmt: skip
    return f"## From text to corpus, {size:,} bytes\n\n" + table(head, rows)


def _feed(found):
    rows = [
        (r["step"], f"{r['making_seconds'] * 1e9:.1f}", f"{r['step_seconds'] * 1e9:,.0f}",
         f"{r['making_seconds'] / r['step_seconds']:.2%}")
        for r in found
    ]  # fmt: skip
    head = ("", "ns a token, making batches", "ns a token, step", "share")
    return "## Making the batches of a step, one thread\n\n" + table(head, rows)


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument("results", type=Path, help="the JSON that python -m bench wrote")
    parser.add_argument("-o", "--output", type=Path, help="write Markdown here, not to the screen")
    parser.add_argument("--plots", type=Path, help="a folder for the plots (SVG)")
    parser.add_argument("--readme", type=Path, help="a README whose figures are made anew")
    given = parser.parse_args(argv)
    found = json.loads(given.results.read_text())
    text = markdown(found)
    if given.readme:
        command = f"python -m bench.report {given.results} --readme {given.readme}"
        given.readme.write_text(summary.fill(given.readme.read_text(), found, command))
    if given.plots:
        from .plots import draw

        draw(found, given.plots)
    if given.output:
        given.output.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
