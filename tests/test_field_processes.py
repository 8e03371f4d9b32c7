"""Field cases of whole processes: threads, instruction sets, caches, the caller's arithmetic."""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
from subjects import HAS_NATIVE, HAS_NUMBA

import fastnplm
from fastnplm import threads as thread_count

ROOT = Path(__file__).resolve().parents[1]
LINES = ["a b c d"] * 20
KERNELS = [
    pytest.param("reference"),
    pytest.param("numba", marks=pytest.mark.skipif(not HAS_NUMBA, reason="no numba")),
    pytest.param("native", marks=pytest.mark.skipif(not HAS_NATIVE, reason="not built")),
]
needs_native = pytest.mark.skipif(not HAS_NATIVE, reason="the native kernels are not built")


def python(script, *arguments, **options):
    """What a fresh Python prints; a failure shows what it said."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)} | options.pop("env", {})
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *arguments],
        env=environment, capture_output=True, text=True, timeout=300, check=False, **options,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def trained(lines, seed=0, **settings):
    """A small model of ``lines`` and its history."""
    with fastnplm.Corpus.prepare(lines, min_count=1) as corpus:
        model = fastnplm.NPLM(corpus.vocabulary, context=2, dim=5, hidden=7, seed=seed)
        options = {"epochs": 1, "batch_size": 16, "quiet": True, "seed": seed, **settings}
        return model, fastnplm.train(model, corpus, **options)


def bits(model):
    return b"".join(value.tobytes() for value in model.parameters.values())


SUBNORMAL = """
    import math, sys, threading

    def kept():
        tiny = float(sys.argv[1])  # no constant that the compiler folds
        found = []
        look = threading.Thread(target=lambda: found.append(tiny / float(sys.argv[2]) != 0))
        look.start()
        look.join()
        return tiny / float(sys.argv[2]) != 0 and found[0]

    print(kept())
    import numpy as np
    import fastnplm.errors
    from fastnplm import kernels
    kernels.load(sys.argv[3])
    print(kept())
    lines = ["a b c d"] * 50
    with fastnplm.Corpus.prepare(lines, min_count=1) as corpus:
        for loss in ("softmax", "ns"):
            model = fastnplm.NPLM(corpus.vocabulary, context=2, dim=5, hidden=7)
            options = dict(loss=loss, epochs=1, kernels=sys.argv[3], threads=2, quiet=True)
            fastnplm.train(model, corpus, **options)
            print(kept())
            model.embedding[5, 0] = math.nan
            try:
                fastnplm.train(model, corpus, **options)
            except fastnplm.errors.DivergenceError as error:
                print("reported" if "nan" in str(error) else error)
"""


@pytest.mark.parametrize("kernels", KERNELS)
def test_fc_23_the_callers_arithmetic_stays_and_nan_is_reported(kernels):
    said = python(SUBNORMAL, "5e-324", "1", kernels).split()
    assert said == ["True", "True", "True", "reported", "True", "reported"]


@pytest.mark.parametrize("threads", [8, pytest.param(64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kernels", KERNELS)
def test_fc_37_tiny_job_many_threads_many_times(kernels, threads):
    first = None
    with fastnplm.Corpus.prepare(LINES, min_count=1) as corpus:
        for run in range(200):
            model = fastnplm.NPLM(corpus.vocabulary, context=2, dim=5, hidden=7)
            history = fastnplm.train(
                model, corpus, epochs=1, batch_size=32, threads=threads, kernels=kernels,
                loss=("softmax", "ns")[run % 2], quiet=True,
            )  # fmt: skip
            record = history.epochs[0]
            assert record["tokens"] == 100
            assert history.updates == 4
            assert np.isfinite(record["train_loss"])
            assert record["seconds"] < 10
            if run % 2 == 0:
                first = first or bits(model)
                assert bits(model) == first


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
@needs_native
def test_fc_40_default_threads_and_inner_libraries():
    """As many threads as processors this process may use; the caller's BLAS keeps its own."""
    usable = sorted(os.sched_getaffinity(0))
    assert 1 <= thread_count.default_threads() <= len(usable)
    script = """
        import os, sys, threading, time
        few = {int(sys.argv[1])}
        os.sched_setaffinity(0, few)
        import numpy as np
        from fastnplm import threads
        import fastnplm
        lines = [" ".join(f"w{i * j % 997}" for i in range(20)) for j in range(500)]
        corpus = fastnplm.Corpus.prepare(lines, min_count=1)  # the reader's thread has ended
        count = lambda: len(os.listdir("/proc/self/task"))
        np.ones((500, 500)) @ np.ones((500, 500))  # BLAS has its threads now
        before = count()
        most, going = [0], True
        def watch():
            while going:
                most[0] = max(most[0], count())
                time.sleep(0.001)
        watcher = threading.Thread(target=watch)
        watcher.start()
        model = fastnplm.NPLM(corpus.vocabulary, context=2, dim=16, hidden=32)
        fastnplm.train(model, corpus, epochs=1, kernels="native", quiet=True)
        going = False
        watcher.join()
        assert threads.default_threads() == 1, threads.default_threads()
        print(most[0] - before - 1)
    """
    env = {"OPENBLAS_NUM_THREADS": "1"}
    assert int(python(script, str(usable[0]), env=env)) == 0


@pytest.mark.parametrize("kernels", KERNELS)
def test_fc_42_two_trainings_and_a_prediction_at_once(kernels):
    lines = ["a b c"] * 500
    settings = {"kernels": kernels, "threads": 1}
    alone = [bits(trained(lines, seed, **settings)[0]) for seed in (1, 2)]
    asked, _ = trained(lines, 3, epochs=3, **settings)
    answer = asked.predict("a b", k=3)
    assert answer[0][0] == "c"
    found, failures = {}, []

    def work(name, task):
        try:
            found[name] = task()
        except BaseException as error:
            failures.append(error)

    def ask():
        return [asked.predict("a b", k=3) for _ in range(50)]

    tasks = [
        threading.Thread(target=work, args=(1, lambda: bits(trained(lines, 1, **settings)[0]))),
        threading.Thread(target=work, args=(2, lambda: bits(trained(lines, 2, **settings)[0]))),
        threading.Thread(target=work, args=("asked", ask)),
    ]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join(120)
        assert not task.is_alive()
    assert not failures
    assert [found[1], found[2]] == alone
    assert all(reply == answer for reply in found["asked"])


@needs_native
def test_fc_58_each_instruction_set_gives_the_same_evaluation(tmp_path):
    from fastnplm.kernels import native

    rng = np.random.default_rng(58)
    lines = [" ".join(f"w{i}" for i in rng.zipf(1.3, 12) % 300) for _ in range(400)]
    model, _ = trained(lines, epochs=2, threads=1)
    model.save(tmp_path / "model")
    text = tmp_path / "text.txt"
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    script = """
        import sys, fastnplm
        from fastnplm.kernels import native
        print(fastnplm.evaluate(fastnplm.load(sys.argv[1]), sys.argv[2], kernels="native").nats)
        print(native.describe()["instruction_set"])
    """
    levels = native.instruction_sets()
    found = []
    for level in levels:
        nats, used = python(
            script, str(tmp_path / "model"), str(text), env={"FASTNPLM_ISA": level}
        ).split()
        assert used == level
        found.append(float(nats))
    exact = fastnplm.evaluate(fastnplm.load(tmp_path / "model"), text, kernels="reference").nats
    assert found == pytest.approx([exact] * len(levels), rel=1e-5)


@needs_native
def test_fc_58_an_instruction_set_that_is_not_there_is_refused_in_a_sentence():
    script = """
        import numpy as np
        from fastnplm.errors import SettingsError
        from fastnplm.kernels import native
        try:
            native.gather_rows(np.zeros(1, np.int32), np.zeros((1, 1), np.float32),
                               np.zeros((1, 1), np.float32))
        except SettingsError as error:
            print(error)
    """
    said = python(script, env={"FASTNPLM_ISA": "pentium"})
    assert "FASTNPLM_ISA is 'pentium'" in said
    assert said.count("\n") == 1


def _bound_by_permissions():
    """In a child before it begins: not even root may write where the permissions forbid it."""
    if os.geteuid() == 0:
        drop_from_bounding_set, override_permissions = 24, 1
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        if prctl(drop_from_bounding_set, override_permissions, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "cannot give up root's rights")


@pytest.mark.slow
@pytest.mark.skipif(not HAS_NUMBA, reason="numba is not installed")
@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="gives up root's rights as Linux does"
)
def test_fc_59_no_place_to_cache_compiled_code():
    script = """
        import os, sys, tempfile, warnings
        warnings.simplefilter("default")
        tempfile.tempdir = sys.argv[1]
        for folder in (sys.argv[1], os.path.dirname(sys.argv[1])):
            assert not os.access(folder, os.W_OK), folder
        import fastnplm
        from fastnplm.kernels import jitted_loops
        assert fastnplm.__file__.startswith(os.path.dirname(sys.argv[1])), fastnplm.__file__
        corpus = fastnplm.Corpus.open(sys.argv[2])
        model = fastnplm.NPLM(corpus.vocabulary, context=2, dim=5, hidden=7)
        out = os.path.join(sys.argv[3], "model")
        history = fastnplm.train(
            model, corpus, epochs=2, kernels="numba", out=out, overwrite=True, quiet=True
        )
        assert history.updates == 2
        print(len(history.epochs))
    """
    place = Path(tempfile.mkdtemp(prefix="fastnplm-fc59-"))
    try:
        package = place / "package"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "fastnplm", package / "fastnplm", ignore=ignored)
        (package / "temporary").mkdir()
        fastnplm.Corpus.prepare(LINES, out=place / "corpus", min_count=1).close()
        (place / "out").mkdir()
        for path in [place, *place.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        (place / "out").chmod(0o777)
        environment = {
            "PYTHONPATH": str(package),
            "HOME": str(place / "nowhere"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script),
             str(package / "temporary"), str(place / "corpus"), str(place / "out")],
            env=environment, capture_output=True, text=True, timeout=300, check=False,
            cwd=package, preexec_fn=_bound_by_permissions,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == "2"
        assert done.stderr.count("Warning") <= 1, done.stderr
    finally:
        for path in [place, *place.rglob("*")]:
            if path.is_dir():
                path.chmod(0o755)
        shutil.rmtree(place)
