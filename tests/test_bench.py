"""The benchmark suite: contenders do the same step, wrong ones are caught, reports render."""

import dataclasses
import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import fastnplm
from fastnplm.loss import NegativeSampling, Softmax

# The suite is run from a checkout and never installed; last, so that it hides no installed module.
sys.path.append(str(Path(__file__).parents[1]))

from bench import (
    check,
    contenders,
    criteria,
    kernel_check,
    kernels,
    losses,
    prepare,
    race,
    report,
    rounds,
    sampled,
    summary,
    torch_contenders,
    workloads,
)

SMALL = workloads.Workload("small", 301, 7, 13, 33, context=3)
SMALL_SAMPLED = dataclasses.replace(SMALL, vocabulary=53, loss="ns", negatives=5)


@pytest.fixture(scope="module")
def softmax():
    return check.Expected.compute(SMALL)


@pytest.fixture(scope="module", params=["ns", "nce"])
def noise(request):
    return check.Expected.compute(dataclasses.replace(SMALL_SAMPLED, loss=request.param))


def made(known, name, workload):
    try:
        return known[name](workload, 1)
    except contenders.UnavailableError as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("name", [name for name in contenders.CONTENDERS if name != "roof"])
def test_contender_makes_the_float64_step(softmax, name):
    softmax.check(name, made(contenders.CONTENDERS, name, SMALL))


@pytest.mark.parametrize("name", torch_contenders.CONTENDERS)
def test_torch_makes_the_float64_step(softmax, name):
    softmax.check(name, made(torch_contenders.CONTENDERS, name, SMALL))


@pytest.mark.parametrize("name", sampled.CONTENDERS | torch_contenders.SAMPLED)
def test_sampled_contender_makes_the_float64_step(noise, name):
    known = sampled.CONTENDERS | torch_contenders.SAMPLED
    noise.check(name, made(known, name, noise.workload))


def test_noise_shared_by_a_block():
    workload = dataclasses.replace(SMALL_SAMPLED, shared=4)
    expected = check.Expected.compute(workload)
    expected.check("numpy tuned", sampled.NumpySampled(workload, 1))


class Lazy(contenders.PlainNumpy):
    """Broken on purpose: the output bias stays as it is."""

    def step(self, contexts, targets, rate):
        before = self.parameters["output_bias"].copy()
        loss = super().step(contexts, targets, rate)
        self.parameters["output_bias"][:] = before
        return loss


class Overwriting(contenders.PlainNumpy):
    """Broken on purpose: of a word's gradients only the last counts."""

    def step(self, contexts, targets, rate):
        before = self.parameters["embedding"].copy()
        loss = super().step(contexts, targets, rate)
        change = self.parameters["embedding"] - before
        ids, counts = np.unique(contexts, return_counts=True)
        self.parameters["embedding"][ids] = before[ids] + change[ids] / counts[:, None]
        return loss


class OffLoss(contenders.PlainNumpy):
    """Broken on purpose: the loss it returns is too large by a constant."""

    def step(self, contexts, targets, rate):
        return super().step(contexts, targets, rate) + 0.1


@pytest.mark.parametrize("broken", [Lazy, Overwriting, OffLoss])
def test_wrong_contender_is_not_timed(softmax, broken):
    with pytest.raises(check.WrongResultError):
        softmax.check("broken", broken(SMALL, 1))


def test_expected_step_survives_its_files(softmax, tmp_path):
    softmax.save(tmp_path)
    loaded = check.Expected.load(tmp_path)
    assert loaded.loss == softmax.loss
    assert loaded.workload == SMALL
    loaded.check("numpy tuned", contenders.TunedNumpy(SMALL, 1))


@pytest.mark.parametrize("case", kernels.cases(SMALL), ids=lambda case: case.name)
def test_kernels_agree_before_they_are_timed(case):
    for name, module in kernels.modules().items():
        kernel_check.check(case, name, module)


def test_kernel_check_catches_a_wrong_kernel():
    case = next(case for case in kernels.cases(SMALL) if case.name == "bias_tanh")

    class Broken:
        @staticmethod
        def bias_tanh(bias, hidden, threads=1):
            hidden += bias

    with pytest.raises(check.WrongResultError, match="hidden differs"):
        kernel_check.check(case, "broken", Broken)


def test_batches_are_zipf_and_never_target_the_start():
    workload = dataclasses.replace(SMALL, batch=20_000)
    contexts, targets = workloads.Batches(workload, count=1).next()
    assert contexts.dtype == targets.dtype == np.int32
    assert contexts.min() >= 0
    assert contexts.max() < workload.vocabulary
    assert not (targets == workloads.Words.start_id).any()
    share = (contexts == 0).mean()
    expected = workloads.zipf(workload.vocabulary)[0]
    assert abs(share - expected) < 5 * np.sqrt(expected / contexts.size)


@pytest.mark.slow
def test_pytest_runs_the_benchmarks():
    chosen = "tanh_backward or dense_update or (test_step and tiny and numpy)"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "bench", "-q", "-k", chosen],
        cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert "dense_update-reference" in done.stdout


@pytest.mark.slow
def test_workers_run_in_interleaved_rounds(tmp_path):
    names = ("roof", "reference", "numpy plain")
    results = rounds.measure(
        [(name, SMALL, 1) for name in names], 2, str(tmp_path / "lock"), tell=lambda line: None
    )
    assert [len(result.seconds) for result in results] == [2, 2, 2]
    assert [result.checked for result in results] == [False, True, True]
    assert all(seconds > 0 for result in results for seconds in result.seconds)


def test_lock_keeps_others_out(tmp_path):
    path, order = str(tmp_path / "lock"), []

    def other():
        with rounds.quiet(path):
            order.append("other")

    with rounds.quiet(path):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "other"]


def fake(name, seconds, size="S", threads=1):
    workload = workloads.SIZES[size]
    return rounds.Result(name, workload, threads, list(seconds)).record()


def test_ratio_is_taken_round_by_round():
    mine, other = fake("native", [1.0, 2.0, 4.0]), fake("roof", [2.0, 2.0, 12.0])
    assert criteria.ratio(mine, other) == (1.5, 2.0, 2.5)


def test_goal_measures_only_its_own_size_and_threads():
    goal = criteria.Goal("S", "native", "roof", 1.08)
    results = [fake("native", [1.0], "M"), fake("roof", [9.0], "M"), fake("native", [1.0])]
    assert goal.measured(results) is None
    assert goal.measured([*results, fake("roof", [1.5])]) == (1.5, 1.5, 1.5)


def test_goal_is_for_noise_of_its_own():
    goal = criteria.Goal("ns-50k", "native", "torch sparse", 4.5)
    own, peer = fake("native", [2.0], "ns-50k"), fake("torch sparse", [6.0], "ns-50k")
    shared = fake("native", [1.0], "ns-50k")
    shared["workload"] = shared["workload"] | {"shared": 32}
    assert goal.measured([own, peer, shared]) == (3.0, 3.0, 3.0)


def test_two_threads_are_compared_with_one_in_the_same_rounds():
    one, two = fake("native", [2.0, 6.0, 2.0], "ns-50k"), fake("native", [1.0] * 3, "ns-50k", 2)
    other = fake("native", [9.0] * 3, "ns-200k")
    found = criteria.others({"sampled": [other], "threads": [other, one, two]})
    measured = {what: value for what, _, _, value in found}
    assert measured["ns, V = 50k: two threads against one"] == 2.0
    found = criteria.others({"threads": [other, one]})
    assert {value for *_, value in found} == {None}


def test_a_bound_is_the_products_at_the_peak():
    goal = criteria.Goal("S", "native", "torch", 1.8)
    results = [fake("native", [1.0]), fake("torch", [3.0])]
    flops = 6 * 256 * 10_000 * 128
    assert goal.most(results, {"float32_flops": flops / 0.5}) == pytest.approx(6.0)
    assert goal.most(results, {"unavailable": "no C compiler"}) is None
    sampled = [fake("native", [1.0], "ns-50k"), fake("torch", [3.0], "ns-50k")]
    assert criteria.Goal("ns-50k", "native", "torch", 1).most(sampled, {"float32_flops": 1}) is None


@pytest.mark.parametrize("size", ["S", "ns-50k"])
def test_the_probe_stands_beside_every_kind_of_step(size):
    from bench import worker

    try:
        probe = worker.make("probe", workloads.SIZES[size], 1)
    except contenders.UnavailableError as reason:
        pytest.skip(str(reason))
    assert probe.step(None, None, 0.1) == 0.0


def test_a_sampled_step_on_two_threads_is_shown_from_the_section_of_threads():
    one, two = fake("native", [2.0], "ns-50k"), fake("native", [1.0], "ns-50k", 2)
    again = fake("native", [4.0], "ns-50k")
    for record in (one, two, again):
        record["workload"] = record["workload"] | {"loss": "ns"}
    shown = summary.lines({"sections": {"sampled": [one], "threads": [again, two]}}, "command")
    assert "| tokens a second | ns-50k | ns-50k, 2 threads |" in shown
    assert "| fastnplm | 512 | 1,024 |" in shown
    assert "Two threads against one, in rounds of their own: ns-50k 4.00." in shown


def test_a_readme_without_a_place_for_figures_is_refused():
    with pytest.raises(ValueError, match="no <!-- benchmarks --> block"):
        summary.fill("# README", {"sections": {}}, "command")


@pytest.mark.slow
def test_preparation_is_measured_in_processes_of_its_own(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("a b c a b a\nb c d\n" * 2000)
    found = prepare.measure(text, 1, str(tmp_path / "lock"), tell=lambda line: None)
    assert found["text_bytes"] == text.stat().st_size
    ours = found["contenders"]["fastnplm, two cores"]
    assert (ours["words"], ours["vocabulary"]) == (18_000, 4)
    assert found["contenders"]["wc -w"]["words"] == 18_000
    assert len(ours["first"]) == len(ours["again"]) == 1
    assert 0 < ours["peak_bytes"] < 2**30
    (shares, *_) = prepare.feed(text, tell=lambda line: None)
    assert shares["making_seconds"] > 0


def test_race_stops_at_its_seconds_and_takes_the_exact_perplexity(monkeypatch):
    monkeypatch.setattr(race, "FIRST_MARK", 0.01)
    text = [f"a b {word} ." for word in "cdefgh" * 30]
    seconds = {"softmax": 0.05, "ns": 0.02}
    chosen = [loss for loss in race.losses(5, shared=4) if loss.name in seconds]
    with (
        fastnplm.Corpus.prepare(text, min_count=1) as corpus,
        fastnplm.Corpus.prepare(text[:9], vocabulary=corpus.vocabulary) as valid,
    ):
        found = list(race.race(corpus, valid, chosen, seconds, tell=lambda line: None))
        size = len(corpus.vocabulary)
    assert [run["loss"] for run in found] == ["ns", "softmax"]
    for run in found:
        spent, tokens, perplexity = run["curve"][-1]
        assert spent >= seconds[run["loss"]]
        assert tokens > 0
        assert 1 < perplexity < size
        assert run["curve"] == sorted(run["curve"])


def test_race_draws_its_curves(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib draws the plots")
    from bench import plots

    run = {"loss": "ns", "negatives": 5, "shared": 4, "curve": [[1.0, 10, 60.0], [2.0, 20, 50.0]]}
    plots.race([run], tmp_path / "race.svg")
    assert "<svg" in (tmp_path / "race.svg").read_text()


def test_quality_follows_every_epoch_and_times_training_alone():
    text = [f"a b {word} ." for word in "cdefgh" * 30]
    lines = []
    chosen = {Softmax(): 2, NegativeSampling(5): 3}
    found = losses.quality(text, text[:9], chosen, tell=lines.append, batch=64)
    assert [(run["loss"], len(run["curve"])) for run in found] == [("softmax", 2), ("ns", 3)]
    for run in found:
        assert run["curve"] == sorted(run["curve"])
        assert 1 < run["curve"][-1][1] < run["vocabulary"]
    assert len(lines) == 5


def test_race_tells_who_was_there_first():
    softmax = {"loss": "softmax", "negatives": None, "shared": None, "curve": [[100.0, 10, 50.0]]}
    sampled = {"loss": "ns", "negatives": 5, "shared": 4, "curve": [[10.0, 9, 60.0], [20.0, 9, 50]]}
    text = race.table([softmax, sampled])
    assert "| ns, K=5 shared by 4 | 20 | 9 | 50.0 | 20 s, 5 times sooner |" in text


def test_report_renders_every_section(tmp_path):
    steps = [fake("roof", [2.0, 2.0]), fake("native", [1.0, 1.0]), fake("torch", [3.0, 3.0])]
    steps.append(rounds.Result("numba", workloads.SIZES["S"], 1, unavailable="no numba").record())
    threads = [
        fake(name, [1.0 / t, 1.0 / t], threads=t) for name in ("probe", "native") for t in (1, 2)
    ]
    curve = [[10.0, 300.0], [20.0, 200.0]]
    run = {"loss": "softmax", "negatives": None, "shared": None, "epochs": 2, "curve": curve}
    ladder = [fake(name, [1.0]) for name in ("roof", "native")]
    found = {
        "machine": {"processor": "some processor", "instruction_sets": ["avx2"]},
        "peaks": {"unavailable": "no C compiler"},
        "sections": {
            "steps": steps,
            "sampled": [fake("native", [1.0, 1.0], "ns-50k")],
            "threads": threads,
            "optimizers": [fake("native", [1.0, 1.0], "M")],
            "memory": [
                {"contender": "native", "workload": "S", "extra_bytes": 2**20, "scores_bytes": 8}
            ],
            "parts": {"S": {"softmax_step": 0.9, "rest": 0.1}},
            "kernels": [
                {"kernel": "gather_rows", "module": "native", "median": 1e-6, "flops": 0.0,
                 "moved": 1e3, "limit_seconds": 5e-7, "binds": "bandwidth", "workload": "S"}
            ],
            "ladders": {"vocabulary": ladder},
            "losses": [fake("native", [1.0], "ns-50k") | {"extra_bytes": 10}],
            "sharing": [fake("native", [1.0], "ns-50k")],
            "quality": [run | {"vocabulary": 99, "batch": 4}],
            "endtoend": {"fastnplm train": [9.0], "fastnplm bare step": [10.0]},
            "prepare": {
                "text_bytes": 10**8,
                "contenders": {
                    name: {"first": [s, s], "again": [s / 2, s], "peak_bytes": 2**28, "words": 7,
                           "vocabulary": 3}
                    for name, s in (("fastnplm, one core", 0.5), ("fastnplm, two cores", 0.4),
                                    ("gensim build_vocab", 5.5))
                },
            },
            "feed": [{"step": "ns", "making_seconds": 4e-8, "step_seconds": 4e-6}],
        },
    }  # fmt: skip
    text = report.markdown(found)
    assert "| S: native against roof | 1.08 | 1.15 | 2.00 | aim reached |" in text
    assert "| S: native against torch | 1.80 |  | 3.00 | reached |" in text
    assert "Sections of other runs" not in text
    found["measured"] = {"threads": {"date": "2026-11-30 16:53", "commit": "abc1234"}}
    text = report.markdown(found)
    assert "Sections of other runs: threads 2026-11-30 16:53, commit abc1234." in text
    assert "no numba" in text
    assert "| fastnplm bare step | 10 | 0.90 |" in text
    assert "| softmax_step | 900.000 | 90.0% |" in text
    assert "| fastnplm, one core, against gensim build_vocab | 10.00 |  | 11.00 | reached |" in text
    assert (
        "| fastnplm, two cores, against gensim build_vocab | 15.00 |  | 13.75 | **short**" in text
    )
    assert "| preparing on one core, MB/s | 60.00 |  | 200.00 | reached |" in text
    assert "| ns | 40.0 | 4,000 | 1.00% |" in text
    path = tmp_path / "found.json"
    path.write_text(json.dumps(found))
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- benchmarks -->\nold\n<!-- end -->\nafter\n")
    report.main([str(path), "-o", str(tmp_path / "report.md"), "--plots", str(tmp_path),
                 "--readme", str(readme)])  # fmt: skip
    shown = readme.read_text()
    assert shown.startswith("before\n<!-- benchmarks -->\n| tokens a second | S | ns-50k |")
    assert shown.endswith("<!-- end -->\nafter\n")
    assert "old" not in shown
    assert "| fastnplm | 256 | 1,024 |" in shown
    assert "| PyTorch | 85 (3.00x) |  |" in shown
    assert (tmp_path / "report.md").read_text() == text
    assert len(list(tmp_path.glob("*.svg"))) == 4
