"""The few lines of the results that README.md shows, put between its markers by a command."""

import re
import statistics

from .criteria import ratio

COLUMNS = (
    ("S", "softmax", 1), ("M", "softmax", 1), ("L", "softmax", 1), ("ns-50k", "ns", 1),
    ("ns-200k", "ns", 1), ("M", "softmax", 2), ("ns-50k", "ns", 2),
)  # fmt: skip
ROWS = {
    "fastnplm": ("native",),
    "fastnplm, bfloat16": ("native bf16",),
    "PyTorch": ("torch", "torch sparse"),
    "PyTorch, tcmalloc and huge pages": ("torch tuned", "torch sparse tuned"),
    "NumPy, tuned": ("numpy tuned",),
    "three bare NumPy products": ("roof",),
}


def fill(text, found, command):
    """README's text with the block of speeds made anew from the suite's JSON."""
    return fill_block(text, "benchmarks", lines(found, command))


def fill_block(text, name, made):
    """``text`` with what stands between ``<!-- name -->`` and ``<!-- end -->`` replaced."""
    block = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not block.search(text):
        raise ValueError(f"README has no <!-- {name} --> block")
    return block.sub(lambda match: match[1] + made + match[2], text)


def lines(found, command):
    """A table of tokens a second, with how many times as fast fastnplm is in the same rounds."""
    from .report import table

    by, alone = {}, {}
    for section in ("steps", "sampled", "threads"):  # a sampled step on two threads is in the last
        for record in found["sections"].get(section, []):
            w = record["workload"]
            if record["seconds"] and w["shared"] == 1:
                key = (w["name"], w["loss"], record["threads"])
                by.setdefault(key, {}).setdefault(record["contender"], record)
                if section == "threads" and record["threads"] == 1:
                    alone[w["name"], w["loss"], record["contender"]] = record
    columns = [key for key in COLUMNS if key in by]
    rows = []
    for label, names in ROWS.items():
        cells = [_cell(by[key], names) for key in columns]
        if any(cells):
            rows.append((label, *cells))
    gains = [
        f"{name} {ratio(by[name, loss, 2]['native'], alone[name, loss, 'native'])[1]:.2f}"
        for name, loss, threads in columns
        if threads == 2 and (name, loss, "native") in alone and loss != "softmax"
    ]
    note = f" Two threads against one, in rounds of their own: {', '.join(gains)}." if gains else ""
    head = ["tokens a second"]
    for name, _, threads in columns:
        head.append(name + (f", {threads} threads" if threads > 1 else ""))
    sizes = "; ".join(_sizes(by[key]) for key in columns if key[2] == 1)
    machine = found.get("machine", {})
    return (
        table(head, rows)
        + f"\n\n{sizes}. N = 4, whole steps, one thread unless said; in brackets how many times as"
        f" fast fastnplm's float32 step was in the same rounds.{note} {machine.get('processor')},"
        f" {machine.get('date')} UTC, commit {machine.get('commit')}; all tables:"
        f" [docs/benchmarks.md](docs/benchmarks.md). Made by `{command}`.\n"
    )


def _cell(records, names):
    record = next((records[name] for name in names if name in records), None)
    if record is None:
        return ""
    speed = record["workload"]["batch"] / statistics.median(record["seconds"])
    cell = f"{speed:,.0f}"
    mine = records.get("native")
    ours = record["contender"].startswith("native")
    if mine and not ours and len(mine["seconds"]) == len(record["seconds"]):
        cell += f" ({ratio(mine, record)[1]:.2f}x)"
    return cell


def _sizes(records):
    w = next(iter(records.values()))["workload"]
    noise = f" K={w['negatives']}" if w["loss"] != "softmax" else ""
    return f"{w['name']}: V={w['vocabulary']:,} M={w['dim']} H={w['hidden']} B={w['batch']}{noise}"
