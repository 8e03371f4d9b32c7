"""Each kernel alone: its arguments at a workload's sizes, its work, and its limit.

    python -m bench.kernels --size M --threads 1

Caches are as in a training step: small arrays were just written and are warm, tables and scores
larger than the cache are not, and ids change from call to call. The limit of a kernel is what
binds: the multiply-add peak for its flops, or the bandwidth measured over as many bytes.
"""

import argparse
import dataclasses
import functools
import inspect
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from . import rounds, workloads

VARIANTS = 8  # sets of ids a case turns through


@dataclasses.dataclass
class Case:
    """A kernel's call.

    arguments : by name, as ``reference`` spells them, apart from ``scratch`` and ``threads``
    varied : lists of VARIANTS values for the arguments that change from call to call
    written : the arguments that the kernel writes, for the check
    flops : of its products; moved : bytes read and written at least; kind : of that traffic
    """

    name: str
    kernel: str
    arguments: dict
    written: tuple
    varied: dict = dataclasses.field(default_factory=dict)
    flops: float = 0.0
    moved: float = 0.0
    kind: str = "modify"
    precision: str = "float32"
    scratch: tuple = ()
    elements: int = 0

    def fresh(self):
        """The case with arrays of its own for what its kernel writes."""
        own = {k: v.copy() if k in self.written else v for k, v in self.arguments.items()}
        return dataclasses.replace(self, arguments=own)

    def calls(self, module, threads):
        """VARIANTS functions without arguments that make the call with ``module``."""
        function = getattr(module, self.kernel)
        fixed = dict(self.arguments)
        if self.scratch:
            name, *sizes = self.scratch
            settings = sizes.pop() if isinstance(sizes[-1], dict) else {}
            size = getattr(module, name)(*sizes, **settings, threads=threads)
            fixed["scratch"] = np.empty(size + 64, np.uint8)
            start = -fixed["scratch"].ctypes.data % 64
            fixed["scratch"] = fixed["scratch"][start : start + size]
        if "threads" in inspect.signature(getattr(_reference(), self.kernel)).parameters:
            fixed["threads"] = threads
        turns = ({name: v[i] for name, v in self.varied.items()} for i in range(VARIANTS))
        return [functools.partial(function, **fixed, **turn) for turn in turns]

    def limit(self, peaks, threads=1):
        """(seconds at the limit, what binds): None where nothing was measured for it."""
        from . import probe

        bounds = []
        peak = peaks.get("bf16_flops" if self.precision == "bf16" else "float32_flops")
        if self.flops and peak:
            bounds.append((self.flops / peak / threads, "multiply-add"))
        if self.moved and peak:
            megabytes = min(max(self.moved / 2**20, 0.03), 512)
            bounds.append((self.moved / probe.bandwidth(megabytes, self.kind), "bandwidth"))
        return max(bounds, default=(None, None))


def _reference():
    from fastnplm.kernels import reference

    return reference


def cases(w):
    """The cases at the sizes of workload ``w``: a list of Case."""
    g = np.random.default_rng(0)

    def normal(*shape, scale=0.1):
        return (g.standard_normal(shape, np.float32) * np.float32(scale)).astype(np.float32)

    b, n, m, h, v = w.batch, w.context, w.dim, w.hidden, w.vocabulary
    k = w.negatives
    batches = workloads.Batches(w, count=VARIANTS)
    contexts, targets = zip(*(batches.next() for _ in range(VARIANTS)), strict=True)
    flat = [ids.reshape(-1) for ids in contexts]
    noise = [g.permutation(v)[: b * k].astype(np.int32).reshape(b, k) if v >= b * k else
             g.integers(2, v, (b, k), dtype=np.int32) for _ in range(VARIANTS)]  # fmt: skip
    distinct = np.mean([len(np.unique(ids)) for ids in flat])
    touched = np.mean(
        [len(np.unique(np.r_[t, q.ravel()])) for t, q in zip(targets, noise, strict=True)]
    )
    stream = np.concatenate(flat)
    stream[::20] = workloads.Words.end_id
    hyper = np.array([1e-3, 0, 0, 0, 0, 1.0])
    embedding, output = normal(v, m), normal(v, h, scale=1 / h)
    hidden_weight, weights = normal(h, n * m), np.full(b, 1 / b, np.float32)
    # Small activations: repeated in place, 1 - hidden^2 must not wear a gradient down to nothing.
    hidden = normal(b, h, scale=1e-3)
    bias, output_bias = normal(h), normal(v)
    none = np.empty((0, v, m), np.float32)
    loss, grad = np.empty(b), np.empty((b, h), np.float32)
    update = {"rule": "sgd", "hyper": hyper}
    table = {"output_weight": output, "output_bias": output_bias}
    slots = {
        "weight_slots": np.empty((0, v, h), np.float32),
        "bias_slots": np.empty((0, v), np.float32),
    }
    result = {"losses": loss, "grad_hidden": grad}
    dense = {
        "grad_weight": np.empty_like(hidden_weight),
        "grad_bias": np.empty(h, np.float32),
    }
    step = {"hidden": hidden, "weights": weights} | update | result | table | slots
    stepped = ("losses", "grad_hidden", "output_weight", "output_bias")
    four = 4.0
    found = [
        Case("form_contexts", "form_contexts",
             {"tokens": stream, "start_id": 1, "end_id": 2,
              "contexts": np.empty((b, n), np.int32), "targets": np.empty(b, np.int32)},
             ("contexts", "targets"),
             {"positions": [g.integers(0, len(stream), b) for _ in range(VARIANTS)]},
             elements=b),
        Case("gather_rows", "gather_rows",
             {"table": embedding, "rows": np.empty((b * n, m), np.float32)}, ("rows",),
             {"ids": flat}, moved=2 * four * b * n * m, kind="copy"),
        Case("scatter_update", "scatter_update",
             {"grads": normal(b * n, m), "table": embedding, "slots": none} | update,
             ("table",), {"ids": flat}, moved=four * m * (b * n + 2 * distinct)),
        Case("bias_tanh", "bias_tanh", {"bias": bias, "hidden": hidden.copy()}, ("hidden",),
             flops=26.0 * b * h, moved=2 * four * b * h, elements=b * h),
        Case("tanh_backward", "tanh_backward",
             {"hidden": hidden, "grad_bias": dense["grad_bias"], "grad_hidden": normal(b, h)},
             ("grad_bias", "grad_hidden"), moved=3 * four * b * h),
        Case("layer_forward", "layer_forward",
             {"inputs": normal(b, n * m), "weight": hidden_weight, "bias": bias,
              "hidden": np.empty((b, h), np.float32)}, ("hidden",), flops=2.0 * b * h * n * m),
        Case("layer_backward", "layer_backward",
             {"inputs": normal(b, n * m), "hidden": hidden, "weight": hidden_weight,
              "grad_hidden": normal(b, h), "grad_inputs": np.empty((b, n * m), np.float32)}
             | dense, ("grad_hidden", "grad_weight", "grad_bias", "grad_inputs"),
             flops=4.0 * b * h * n * m),
        Case("words_forward", "words_forward",
             {"embedding": embedding, "weight": hidden_weight, "bias": bias,
              "hidden": np.empty((b, h), np.float32)}, ("hidden",), {"contexts": contexts},
             flops=2.0 * b * h * n * m, scratch=("words_scratch", b, n, m, h)),
        Case("words_backward", "words_backward",
             {"hidden": hidden, "weight": hidden_weight, "grad_hidden": normal(b, h),
              "embedding": embedding, "slots": none} | dense | update,
             ("grad_hidden", "grad_weight", "grad_bias", "embedding"), {"contexts": contexts},
             flops=4.0 * b * h * n * m, scratch=("words_scratch", b, n, m, h)),
        Case("dense_update", "dense_update",
             {"grad": normal(h, n * m), "parameter": hidden_weight.copy(),
              "slots": np.empty((0, h, n * m), np.float32)} | update, ("parameter",),
             moved=3 * four * h * n * m),
        Case("softmax_cross_entropy", "softmax_cross_entropy",
             {"weights": weights, "bias": output_bias, "losses": loss,
              "logits": normal(b, v)}, ("losses", "logits"), {"targets": targets},
             flops=20.0 * b * v, moved=2 * four * b * v, elements=b * v),
        Case("softmax_forward", "softmax_forward",
             {"hidden": hidden, "log_normalizer": np.empty(b), "target_score": np.empty(b)}
             | table, ("log_normalizer", "target_score"), {"targets": targets},
             flops=2.0 * b * v * h),
        Case("draw_noise", "draw_noise",
             {"threshold": g.integers(0, 2**32, v, dtype=np.uint32),
              "alias": g.integers(0, v, v, dtype=np.int32),
              "noise": np.empty(b * k, np.int32)}, ("noise",),
             {"bits": [g.integers(0, 2**64, b * k, dtype=np.uint64) for _ in range(VARIANTS)]},
             elements=b * k),
        Case("negative_step", "negative_step",
             {"block": 1, "skip_target": False, "offsets": np.empty(0, np.float32)} | step,
             stepped, {"targets": targets, "noise": noise},
             moved=four * h * (b * (k + 1) + 2 * touched),
             scratch=("negative_step_scratch", b, 1, k, h)),
    ]  # fmt: skip
    for name, precision, keep in (
        ("softmax_step", "float32", True),
        ("softmax_step recomputing", "float32", False),
        ("softmax_step bf16", "bf16", True),
    ):
        found.append(
            Case(name, "softmax_step", {"precision": precision} | step, stepped,
                 {"targets": targets}, flops=(6.0 if keep else 8.0) * b * v * h,
                 precision=precision, scratch=("softmax_step_scratch", b, h, v,
                 {"precision": precision, "keep": keep}))
        )  # fmt: skip
    return found


def modules(names=("native", "numba", "reference")):
    """The kernel modules that can be had here, by name; what cannot is told."""
    from fastnplm import kernels

    found = {}
    for name in names:
        try:
            found[name] = kernels.load(name)
        except Exception as error:
            print(f"{name}: not run: {error}", file=sys.stderr)
    return found


def measure(workload, threads=1, count=5, lock=None, names=None, loaded=None):
    """Time every case with every module in interleaved rounds: a list of dicts."""
    from . import kernel_check, machine

    found = []
    loaded = loaded or modules()
    with rounds.quiet(lock):
        peaks = machine.peaks()
    for case in cases(workload):
        if names and case.name not in names:
            continue
        calls = {}
        for name, module in loaded.items():
            kernel_check.check(case, name, module, threads)
            calls[name] = case.calls(module, threads)
        taken = {name: [] for name in calls}
        with rounds.quiet(lock):
            seconds, binds = case.limit(peaks, threads)
            for _ in range(count):
                for name, turn in calls.items():
                    taken[name].append(_one(turn))
        for name, values in taken.items():
            middle = statistics.median(values)
            record = {"kernel": case.name, "module": name, "seconds": values, "median": middle}
            record |= {"flops": case.flops, "moved": case.moved, "elements": case.elements}
            record |= {"limit_seconds": seconds, "binds": binds, "threads": threads}
            found.append(record | {"workload": workload.name})
            share = f"{seconds / middle:6.0%} of {binds}" if seconds else ""
            print(f"{case.name:26}{name:10}{middle * 1e6:14,.1f} us  {share}", flush=True)
    return found


def _one(calls, least=0.05):
    """The mean call of one round, in seconds, after a warm one."""
    calls[0]()
    start = time.perf_counter()
    done = 0
    while done < 1 or time.perf_counter() - start < least:
        calls[done % VARIANTS]()
        done += 1
    return (time.perf_counter() - start) / done


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m bench.kernels")
    parser.add_argument("--size", default="M", choices=workloads.SIZES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--names", help="kernels, separated by commas; default: all")
    parser.add_argument("--modules", default="native,numba,reference")
    parser.add_argument("--lock", help="a file whose lock is held during each measurement")
    parser.add_argument("--output", type=Path, help="write the results as JSON")
    given = parser.parse_args(argv)
    names = given.names.split(",") if given.names else None
    found = measure(
        workloads.SIZES[given.size], given.threads, given.rounds, given.lock, names,
        modules(given.modules.split(",")),
    )  # fmt: skip
    if given.output:
        given.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
