"""Whole steps of all contenders at one size: ``python -m bench.steps --size S --threads 1``."""

import argparse
import json
from pathlib import Path

from . import rounds, workloads

SOFTMAX = (
    "roof", "native", "native bf16", "numba", "reference", "numpy tuned", "numpy plain", "torch",
    "torch dense", "torch bf16", "torch tuned",
)  # fmt: skip
SAMPLED = (
    "native",
    "native bf16",
    "numba",
    "numpy tuned",
    "numpy plain",
    "torch sparse",
    "torch sparse tuned",
)


def contenders(workload):
    """The contenders worth timing at a size: at L the slow ones of no interest are left out."""
    if workload.loss != "softmax":
        return SAMPLED
    if workload.name == "L":
        left_out = ("reference", "numpy plain", "torch dense", "torch bf16")
        kept = [name for name in SOFTMAX if name not in left_out]
        return (*kept, "native default buffer")
    if workload.name == "tiny":
        return ("native", "numba", "numpy tuned", "torch", "torch tuned")
    return (*SOFTMAX, "native no buffer")


def table(results, subject="native", peer="roof"):
    """The results as lines of text: milliseconds, and each time over the subject's."""
    timed = {result.contender: result for result in results if result.seconds}
    lines = [f"{'':24}{'ms':>10}{'quartiles':>20}{'tokens/s':>11}{'/ ' + subject:>12}{'share':>9}"]
    for name, result in timed.items():
        low, middle, high = rounds.quartiles(result.seconds)
        spread = f"{low * 1e3:.2f}..{high * 1e3:.2f}"
        line = f"{name:24}{middle * 1e3:10.2f}{spread:>20}{result.workload.batch / middle:11,.0f}"
        if subject in timed:
            line += f"{rounds.ratios(results, timed[subject], result)[1]:11.2f}x"
        if peer in timed:
            line += f"{rounds.ratios(results, result, timed[peer])[1]:9.0%}"
        lines.append(line)
    for result in results:
        if result.unavailable:
            lines.append(f"{result.contender:24}not run: {result.unavailable}")
    return "\n".join(lines)


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m bench.steps", description=__doc__)
    parser.add_argument("--size", default="S", choices=workloads.SIZES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--contenders", help="names, separated by commas; default: all")
    parser.add_argument("--no-check", action="store_true", help="time without checking first")
    parser.add_argument("--lock", help="a file whose lock is held during each round")
    parser.add_argument("--output", type=Path, help="write the results as JSON")
    given = parser.parse_args(argv)
    workload = workloads.SIZES[given.size]
    names = given.contenders.split(",") if given.contenders else contenders(workload)
    entries = [(name, workload, given.threads) for name in names]
    results = rounds.measure(entries, given.rounds, given.lock, check=not given.no_check)
    print(f"{workload}, threads {given.threads}, {given.rounds} rounds")
    print(table(results))
    if given.output:
        found = [result.record() for result in results]
        given.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
