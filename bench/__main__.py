"""The whole suite: ``python -m bench`` measures section by section and writes one JSON."""

import argparse
import dataclasses
import json
import os
import sys
import time
from pathlib import Path

SECTIONS = (
    "steps", "sampled", "threads", "optimizers", "memory", "parts", "kernels", "ladders",
    "losses", "sharing", "quality", "endtoend", "prepare", "feed",
)  # fmt: skip
QUICK = ("steps", "sampled", "threads", "memory", "parts", "kernels", "ladders")
RESULTS = Path(__file__).parent / "results"


class _Suite:
    """The sections as methods; each returns what goes into the JSON under its name."""

    def __init__(self, given):
        self.given, self.lock, self.count = given, given.lock, given.rounds
        self.quick = given.quick

    def _measure(self, names, workload, threads=1, count=None):
        from . import rounds

        entries = [(name, workload, threads) for name in names]
        results = rounds.measure(entries, count or self.count, self.lock, tell=tell)
        return [result.record() for result in results]

    def steps(self):
        from . import steps, workloads

        found = []
        for size in ("S", "tiny") if self.quick else ("S", "M", "L", "tiny"):
            names = steps.contenders(workloads.SIZES[size])
            if self.quick:
                names = [n for n in names if n not in ("reference", "torch dense", "torch bf16")]
            found += self._measure(names, workloads.SIZES[size])
        if not self.quick:
            two = ("roof", "native", "native bf16", "numba", "numpy tuned", "torch", "torch tuned")
            for size in ("S", "M"):
                found += self._measure(two, workloads.SIZES[size], threads=2)
        return found

    def sampled(self):
        from . import steps, workloads

        found = []
        for size in ("ns-50k",) if self.quick else ("ns-50k", "ns-200k", "ns-2M"):
            workload = workloads.SIZES[size]
            names = ("native",) if size == "ns-2M" else steps.contenders(workload)
            found += self._measure(names, workload)
        one = workloads.SIZES["ns-50k"]
        found += self._measure(("native",), dataclasses.replace(one, shared=32))
        if not self.quick:
            large = workloads.SIZES["ns-200k"]
            exact = dataclasses.replace(large, name="softmax-200k", loss="softmax")
            found += self._measure(("native",), exact, count=3)
            found += self._measure(("native",), dataclasses.replace(large, shared=32))
        return found

    def threads(self):
        from . import scaling, workloads

        found = []
        sizes = ("S", "ns-50k") if self.quick else ("S", "M", "L", "ns-50k", "ns-200k")
        for size in sizes:
            results = scaling.thread_gain(workloads.SIZES[size], self.count, self.lock, tell)
            found += [result.record() for result in results]
        return found

    def optimizers(self):
        from . import scaling

        return [r.record() for r in scaling.optimizers(self.count, self.lock, tell)]

    def memory(self):
        from . import scaling, workloads

        names = ("native", "native bf16", "native no buffer", "numpy tuned", "torch")
        found = []
        for size in ("S",) if self.quick else ("S", "M", "L"):
            found += scaling.memory(workloads.SIZES[size], names)
        if not self.quick:
            found += scaling.memory(workloads.SIZES["L"], ("native default buffer",))
            for size in workloads.SAMPLED.values():
                found += scaling.memory(size, ("native",))
        return found

    def parts(self):
        from . import parts, workloads

        sizes = ("S", "ns-50k") if self.quick else ("tiny", "S", "M", "ns-50k", "ns-200k")
        return {s: parts.measure(workloads.SIZES[s], lock=self.lock) for s in sizes}

    def kernels(self):
        from . import kernels, workloads

        loaded = kernels.modules(("native", "numba"))
        return kernels.measure(
            workloads.SIZES["S" if self.quick else "M"], 1, self.count, self.lock, loaded=loaded
        )

    def ladders(self):
        from . import scaling

        chosen = scaling.QUICK if self.quick else scaling.LADDERS
        return {
            name: [
                result.record()
                for result in scaling.measure(name, 1, 3, self.lock, self.quick, tell)
            ]
            for name in chosen
        }

    def losses(self):
        from . import losses

        return losses.speed(1, 3, self.lock, tell)

    def sharing(self):
        from . import losses

        return losses.sharing(3, self.lock, tell)

    def quality(self):
        from . import losses

        if not (self.given.text and self.given.valid):
            raise SystemExit("quality needs --text and --valid")
        return losses.quality(self.given.text, self.given.valid, losses.usual(), tell)

    def endtoend(self):
        from . import endtoend

        if not self.given.text:
            raise SystemExit("endtoend needs --text")
        return endtoend.measure(self.given.text, 3, self.lock, tell)

    def prepare(self):
        from . import prepare

        if not self.given.text:
            raise SystemExit("prepare needs --text")
        return prepare.measure(self.given.text, self.count, self.lock, tell)

    def feed(self):
        from . import prepare

        if not self.given.text:
            raise SystemExit("feed needs --text")
        return prepare.feed(self.given.text, self.lock, tell)


def tell(line):
    """Progress goes to standard error."""
    print(line, file=sys.stderr, flush=True)


def main(argv=None):
    """Run the suite; ``fastnplm bench`` calls this from a checkout."""
    parser = argparse.ArgumentParser(prog="fastnplm bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="the essentials: fewer sizes, fewer rounds"
    )
    parser.add_argument("--only", help=f"sections, separated by commas: {', '.join(SECTIONS)}")
    parser.add_argument("--rounds", type=int, default=None, help="default 5, with --quick 3")
    parser.add_argument("--text", help="text, for quality, endtoend, prepare and feed")
    parser.add_argument("--valid", help="validation text, for the section quality")
    parser.add_argument("--output", type=Path, help="JSON; sections already in it are kept")
    parser.add_argument("--report", type=Path, help="write the report here (Markdown)")
    parser.add_argument("--lock", help="a file whose lock is held while something is timed")
    given = parser.parse_args(argv)
    given.rounds = given.rounds or (3 if given.quick else 5)
    chosen = list(QUICK if given.quick else SECTIONS)
    if given.only:
        chosen = given.only.split(",")
        unknown = sorted(set(chosen) - set(SECTIONS))
        if unknown:
            parser.error(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    elif not given.text:
        needing = ("quality", "endtoend", "prepare", "feed")
        chosen = [name for name in chosen if name not in needing]
    found = run(given, chosen)
    from . import report

    text = report.markdown(found)
    if given.report:
        given.report.write_text(text)
    print(text, end="")
    return 0


def run(given, chosen):
    """Measure the sections and write the JSON after each; returns what it holds."""
    # Workers set their own; here it keeps kernels that use BLAS to the one thread they are timed
    # with. NumPy reads it when it is first imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from . import machine, rounds

    output = given.output or RESULTS / time.strftime("%Y%m%d-%H%M%S.json")
    output.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(output.read_text()) if output.exists() else {"sections": {}}
    found["machine"] = machine.describe()
    with rounds.quiet(given.lock):
        found["peaks"] = machine.peaks()
    suite = _Suite(given)
    for name in chosen:
        began = time.perf_counter()
        tell(f"--- {name}")
        found["sections"][name] = getattr(suite, name)()
        stamp = {key: found["machine"][key] for key in ("date", "commit")}
        found.setdefault("measured", {})[name] = stamp
        output.write_text(json.dumps(found, indent=1) + "\n")
        tell(f"--- {name}: {time.perf_counter() - began:.0f} s, written to {output}")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
