"""What the suite is there to show: each goal, and how it is read off the results."""

import dataclasses

from . import prepare, rounds, workloads


@dataclasses.dataclass(frozen=True)
class Goal:
    """``subject`` is to be at least ``needed`` times as fast as ``peer``; ``aim`` is the hope.

    size, threads : of the results that are compared; both sides in the same rounds
    """

    size: str
    subject: str
    peer: str
    needed: float
    aim: float | None = None
    threads: int = 1

    def measured(self, results):
        """(lower quartile, median, upper quartile) of the ratio, or None without both sides."""
        mine, other = self._records(results)
        return ratio(mine, other) if mine and other else None

    def _records(self, results):
        chosen = {
            record["contender"]: record
            for record in results
            if record["workload"]["name"] == self.size
            and record["threads"] == self.threads
            and record["workload"]["shared"] == 1
            and record["seconds"]
        }
        return chosen.get(self.subject), chosen.get(self.peer)

    def most(self, results, peaks):
        """The ratio if the subject were the three products of the exact output layer alone, at
        the multiply-add peak (no exp, no hidden layer, no Python); None where that is no bound."""
        mine, other = self._records(results)
        peak = peaks.get("bf16_flops" if self.subject == BF16 else "float32_flops")
        if not (mine and other and peak) or self.subject not in (FLOAT32, BF16):
            return None
        workload = workloads.Workload(**mine["workload"])
        if workload.loss != "softmax" or self.threads != 1:
            return None
        return other["median"] / (workload.output_flops / peak)


def ratio(mine, other):
    """Quartiles over rounds of other's seconds over mine: how many times as fast mine is."""
    pairs = zip(mine["seconds"], other["seconds"], strict=True)
    return rounds.quartiles([b / a for a, b in pairs])


FLOAT32, BF16 = "native", "native bf16"
GOALS = (
    Goal("S", FLOAT32, "roof", 1.08, 1.15),
    Goal("M", FLOAT32, "roof", 1.00, 1.08),
    Goal("L", FLOAT32, "roof", 1.00, 1.08),
    Goal("S", FLOAT32, "torch", 1.8),
    Goal("M", FLOAT32, "torch", 2.0),
    Goal("L", FLOAT32, "torch", 2.4),
    Goal("S", FLOAT32, "torch tuned", 1.4),
    Goal("M", FLOAT32, "torch tuned", 1.2, 1.35),
    Goal("S", FLOAT32, "numpy tuned", 1.5),
    Goal("M", FLOAT32, "numpy tuned", 1.12, 1.2),
    Goal("L", FLOAT32, "numpy tuned", 1.1),
    Goal("S", FLOAT32, "numpy plain", 2.0),
    Goal("M", FLOAT32, "numpy plain", 1.4),
    Goal("S", BF16, "roof", 1.85, 2.0),
    Goal("M", BF16, "roof", 1.95, 2.1),
    Goal("L", BF16, "roof", 1.95, 2.1),
    Goal("S", BF16, "torch", 3.0),
    Goal("M", BF16, "torch", 4.0),
    Goal("L", BF16, "torch", 5.0),
    Goal("M", "native no buffer", FLOAT32, 1 / 1.35),
    Goal("L", "native default buffer", FLOAT32, 1 / 1.35),
    Goal("S", "numba", "numpy tuned", 1.0),
    Goal("M", "numba", "numpy tuned", 1.0),
    Goal("tiny", FLOAT32, "torch", 5.0),
    Goal("ns-50k", FLOAT32, "torch sparse", 4.5, 6.0),
    Goal("ns-50k", FLOAT32, "torch sparse tuned", 3.8),
    Goal("ns-50k", BF16, "torch sparse", 4.5, 6.0),
    Goal("ns-50k", FLOAT32, "numpy tuned", 9.0),
    Goal("ns-50k", BF16, "numpy tuned", 9.0),
    Goal("ns-200k", FLOAT32, "torch sparse", 4.5, 6.0),
    Goal("ns-200k", FLOAT32, "torch sparse tuned", 3.8),
    Goal("ns-200k", BF16, "torch sparse", 4.5, 6.0),
    Goal("ns-200k", FLOAT32, "numpy tuned", 9.0),
    Goal("ns-200k", BF16, "numpy tuned", 9.0),
)
THREAD_GAIN = {"S": 0.90, "M": 0.93, "L": 0.93}  # of what the multiply-add probe gains
SAMPLED_GROWTH = 0.6  # speed at V = 2,000,000 against that at 50,000
SAMPLED_THREADS = 1.7  # two threads against one
SAMPLED_SOFTMAX = 300.0  # tokens a second against the exact softmax, V = 200,000
OPTIMIZER_COST = 1.25  # an Adagrad or Adam step against an SGD step
PREPARE = {"fastnplm, one core": 10.0, "fastnplm, two cores": 15.0}
PREPARE_SPEED = 60.0  # MB/s
FEED_SHARE = 0.03  # of a step, for making its batches
ENDTOEND = {
    "fastnplm bare step": (0.9, None),
    "gensim CBOW": (0.65, 0.9),
    "gensim skip-gram": (2.5, 3.0),
}


def others(sections):
    """Goals that compare across settings: (what, needed, aim, measured), measured maybe None."""
    found = []
    for size, needed in THREAD_GAIN.items():
        for subject in (FLOAT32, BF16):
            gain = _thread_gain(sections.get("threads", []), size, subject)
            what = f"{size}: {subject}, two threads' gain, share of the probe's"
            found.append((what, needed, None, gain))
    sampled = sections.get("sampled", [])

    def speed(size, loss="ns"):
        for record in sampled:
            w = record["workload"]
            named = (w["name"], w["loss"], w["shared"], record["contender"])
            if named == (size, loss, 1, FLOAT32) and record["seconds"]:
                return record["tokens_per_second"]
        return None

    def against(one, other):
        return one / other if one and other else None

    growth = against(speed("ns-2M"), speed("ns-50k"))
    found.append(("ns: speed at V = 2M against 50k", SAMPLED_GROWTH, None, growth))
    one, two = (_of_threads(sections.get("threads", []), "ns-50k", FLOAT32, n) for n in (1, 2))
    gain = ratio(two, one)[1] if one and two else None
    found.append(("ns, V = 50k: two threads against one", SAMPLED_THREADS, None, gain))
    exact = against(speed("ns-200k"), speed("softmax-200k", loss="softmax"))
    found.append(("ns against the exact softmax, V = 200k", SAMPLED_SOFTMAX, None, exact))
    rules = {r["workload"]["optimizer"]: r for r in sections.get("optimizers", []) if r["seconds"]}
    for rule in ("adagrad", "adam"):
        cost = ratio(rules[rule], rules["sgd"])[1] if {rule, "sgd"} <= set(rules) else None
        found.append((f"M: sgd step against {rule} step", 1 / OPTIMIZER_COST, None, cost))
    if "prepare" in sections:
        found += _of_preparing(sections["prepare"])
    for record in sections.get("feed", []):
        share = record["making_seconds"] / record["step_seconds"]
        found.append((f"3 % of a step ({record['step']}) against its batches", 1.0, None,
                      FEED_SHARE / share))  # fmt: skip
    rates = sections.get("endtoend", {})
    for name, (needed, aim) in ENDTOEND.items():
        if name in rates:
            pairs = zip(rates["fastnplm train"], rates[name], strict=True)
            share = rounds.quartiles([a / b for a, b in pairs])[1]
            found.append((f"fastnplm train --loss ns against {name}", needed, aim, share))
    return found


def _of_preparing(found):
    goals = []
    faster = prepare.speedups(found)
    for name, needed in PREPARE.items():
        if name in faster:
            goals.append((f"{name}, against gensim build_vocab", needed, None, faster[name]))
    one = found["contenders"].get("fastnplm, one core")
    if one:
        speed = found["text_bytes"] / rounds.quartiles(one["first"])[1] / 1e6
        goals.append(("preparing on one core, MB/s", PREPARE_SPEED, None, speed))
    for name in PREPARE:
        peak = found["contenders"].get(name, {}).get("peak_bytes")
        if peak:
            goals.append((f"{name}: 1 GiB against its peak memory", 1.0, None, 2**30 / peak))
    return goals


def _of_threads(results, size, contender, threads):
    """The record of one contender in the section ``threads``, or None."""
    for record in results:
        named = (record["workload"]["name"], record["contender"], record["threads"])
        if named == (size, contender, threads) and record["seconds"]:
            return record
    return None


def _thread_gain(results, size, subject):
    """Two threads' gain of ``subject`` over the probe's in the same round, the median."""
    wanted = [(name, threads) for name in (subject, "probe") for threads in (1, 2)]
    records = [_of_threads(results, size, *which) for which in wanted]
    if not all(records):
        return None
    series = zip(*(record["seconds"] for record in records), strict=True)
    return rounds.quartiles([(one / two) / (p1 / p2) for one, two, p1, p2 in series])[1]
