"""Field cases of running, stopping and going on: readers that fail, forks, resumption, signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import runs

import fastnplm
from fastnplm import folder

HERE = Path(__file__).parent
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)]), "OPENBLAS_NUM_THREADS": "1",
}  # fmt: skip
posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


# --- FC-38 --------------------------------------------------------------------------------------


class ReaderError(Exception):
    """What a user's own source of sentences may raise."""


def sentences(fail_at=None):
    for number in range(1000):
        if number == fail_at:
            raise ReaderError(number)
        yield "a b c d"


@pytest.mark.parametrize("threads", [1, 4])
def test_fc_38_the_readers_own_error_reaches_the_caller(threads, tmp_path):
    before = threading.active_count()
    began = time.process_time()
    with pytest.raises(ReaderError, match="500"):
        fastnplm.Corpus.prepare(sentences(500), threads=threads, out=tmp_path / "c", min_count=1)
    with fastnplm.Corpus.prepare(["a b c d"], min_count=1) as known:
        model = runs.network(known)
        parameters = {name: value.copy() for name, value in model.parameters.items()}
        with pytest.raises(ReaderError, match="500"):
            fastnplm.train(model, sentences(500), threads=threads, quiet=True, out=tmp_path / "m")
        assert all((value == parameters[k]).all() for k, value in model.parameters.items())
        assert time.process_time() - began < 2
        assert threading.active_count() == before
        assert list(tmp_path.iterdir()) == []
        options = {"epochs": 1, "threads": threads, "quiet": True, "out": tmp_path / "m"}
        history = fastnplm.train(model, sentences(), **options)
    assert history.epochs[0]["tokens"] == 5000
    assert fastnplm.load(tmp_path / "m").predict("a b", k=1)


# --- FC-39 --------------------------------------------------------------------------------------

FORKING = """
    import multiprocessing, os, pickle, sys, time
    import fastnplm

    WORDS = ["a b", "b", "c c"]


    def predictions(model):
        return [model.predict(words, k=3) for words in WORDS]


    def answer(sent, given):
        model = pickle.loads(given)
        sent.put(predictions(model))


    def trained(seed, threads=4):
        with fastnplm.Corpus.prepare(["a b c"] * 200, min_count=1) as corpus:
            model = fastnplm.NPLM(corpus.vocabulary, context=4, dim=64, hidden=256, seed=seed)
            # batches large enough for threads to be worth it, so that there is a pool to lose
            fastnplm.train(model, corpus, epochs=2, batch_size=512, threads=threads, quiet=True,
                           kernels=sys.argv[1])
        return model


    if __name__ == "__main__":
        model = trained(1)
        mine, again = predictions(model), predictions(trained(2))
        children = []
        for _ in range(2):
            reads, writes = os.pipe()
            child = os.fork()
            if child == 0:
                same = predictions(model) == mine and predictions(trained(2)) == again
                os.write(writes, b"yes" if same else b"no")
                os._exit(0)
            os.close(writes)
            children.append((child, reads))
        for child, reads in children:
            assert os.read(reads, 9) == b"yes"
            assert os.waitpid(child, 0)[1] == 0
        fresh = multiprocessing.get_context("spawn")
        sent = fresh.Queue()
        given = pickle.dumps(model)
        processes = [fresh.Process(target=answer, args=(sent, given)) for _ in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            assert sent.get(timeout=60) == mine
        for process in processes:
            process.join()
            assert process.exitcode == 0
        assert predictions(model) == mine
        print("all alike")
"""


@posix
@pytest.mark.parametrize("kernels", [runs.kernels(), "reference"])
def test_fc_39_forked_and_spawned_processes_answer_alike(tmp_path, kernels):
    script = tmp_path / "forking.py"
    script.write_text(textwrap.dedent(FORKING))
    done = subprocess.run(
        [sys.executable, str(script), kernels], env=ENVIRONMENT, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("all alike\n", 0), done.stderr


def test_kernels_called_from_many_threads_at_once_answer_as_alone():
    """Threads of the host program, each with threads of its own inside."""
    with fastnplm.Corpus.prepare(["a b c d"] * 300, min_count=1) as corpus:

        def trained(seed):
            model = fastnplm.NPLM(corpus.vocabulary, context=4, dim=32, hidden=128, seed=seed)
            options = {"epochs": 1, "batch_size": 512, "threads": 4, "quiet": True}
            fastnplm.train(model, corpus, **options)
            return b"".join(value.tobytes() for value in model.parameters.values())

        alone = [trained(seed) for seed in range(6)]
        found: dict[int, bytes] = {}
        hosts = [
            threading.Thread(target=lambda seed=seed: found.__setitem__(seed, trained(seed)))
            for seed in range(6)
        ]
        for host in hosts:
            host.start()
        for host in hosts:
            host.join(120)
            assert not host.is_alive()
    assert [found[seed] for seed in range(6)] == alone


# --- FC-50 --------------------------------------------------------------------------------------

RESUMING = """
    import json, sys
    import pytest
    import runs
    import fastnplm

    place, out, options, after = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
    with fastnplm.Corpus.open(place) as corpus, pytest.MonkeyPatch.context() as patch:
        model = runs.network(corpus)
        options |= {"out": out, "resume": True, "quiet": True}
        if after:
            with runs.stopped_after(patch, after):
                try:
                    fastnplm.train(model, corpus, **options)
                except KeyboardInterrupt:
                    sys.exit(130)
        fastnplm.train(model, corpus, **options)
"""
LOSSES = ("softmax", "ns", "nce")
OPTIMIZERS = ("sgd", "adagrad", "adam")


@pytest.fixture(scope="module")
def twenty_thousand(tmp_path_factory):
    out = tmp_path_factory.mktemp("words") / "corpus"
    lines = runs.text(20_000, 500).splitlines()
    fastnplm.Corpus.prepare(lines, out=out, min_count=1).close()
    return out


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_fc_50_a_new_process_goes_on_where_another_stopped(
    tmp_path, twenty_thousand, loss, optimizer, request
):
    """``--stops 20`` for as many points as the case asks for."""
    options = {
        "loss": loss, "optimizer": optimizer, "threads": 1, "seed": 1, "epochs": 2,
        "batch_size": 47, "checkpoint_every": 100, "kernels": runs.kernels(),
    }  # fmt: skip

    def process(out, after=0):
        arguments = [str(twenty_thousand), str(out), json.dumps(options), str(after)]
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(RESUMING), *arguments],
            env=ENVIRONMENT, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == (130 if after else 0), done.stderr

    process(tmp_path / "whole")
    expected = runs.contents(tmp_path / "whole")
    updates = fastnplm.Corpus.open(twenty_thousand)
    total = 2 * -(-len(updates) // 47)
    updates.close()
    assert total > 900
    points = np.random.default_rng(hash_of(loss + optimizer)).integers(1, total, 20)
    for point in points[: request.config.getoption("stops")].tolist():
        out = tmp_path / f"stopped-{point}"
        process(out, point)
        process(out)
        assert runs.contents(out) == expected, point


def hash_of(text):
    return int.from_bytes(text.encode()[-7:], "little")


# --- FC-55 --------------------------------------------------------------------------------------

STAGES = ("prepare", "train", "train 8 threads", "evaluate", "export", "ngram")


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Files for which every stage takes long enough to be interrupted."""
    place = tmp_path_factory.mktemp("large")
    text = runs.text(60_000, 20_000)
    with open(place / "text.txt", "w") as file:
        for _ in range(300):
            file.write(text)
    fastnplm.Corpus.prepare(place / "text.txt", out=place / "corpus", min_count=1).close()
    with fastnplm.Corpus.open(place / "corpus") as corpus:
        model = fastnplm.NPLM(corpus.vocabulary, context=4, dim=256, hidden=64)
    model.save(place / "model")
    return place


def words_of(stage, place, out):
    train = ["train", place / "corpus", "-o", out, "--checkpoint-every", "50", "--valid",
             place / "corpus", "--loss", "ns"]  # fmt: skip
    return {
        "prepare": ["prepare", place / "text.txt", "-o", out],
        "train": [*train, "--threads", 1],
        "train 8 threads": [*train, "--threads", 8],
        "evaluate": ["evaluate", place / "model", place / "corpus"],
        "export": ["export", place / "model", "--format", "word2vec", out],
        "ngram": ["ngram", place / "corpus", "-o", out, "--order", 4],
    }[stage]


def cpu_seconds(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def heeds_interrupts():
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processor time is read from /proc")
@pytest.mark.parametrize("stage", STAGES)
def test_fc_55_an_interrupt_at_any_stage(large, tmp_path, stage, request):
    """In processor time, so that a busy machine does not count; ``--stops 50`` for more trials."""
    threads = 8 if "8" in stage else fastnplm.threads.default_threads()
    generator = np.random.default_rng(hash_of(stage))
    interrupted = 0
    for trial in range(2 * request.config.getoption("stops")):
        out = tmp_path / f"{trial}"
        arguments = [str(word) for word in words_of(stage, large, out)]
        process = subprocess.Popen(
            [sys.executable, "-m", "fastnplm", *arguments, "--quiet"], env=ENVIRONMENT,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heeds_interrupts,
        )  # fmt: skip
        wanted = generator.uniform(0.4, 1.2)  # processor time: the work has begun
        while process.poll() is None and cpu_seconds(process) < wanted:
            time.sleep(0.01)
        spent = cpu_seconds(process) if process.poll() is None else None
        process.send_signal(signal.SIGINT)
        said = process.stderr.read().decode()
        process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0) if process.returncode is None else (0, 0, None)
        process.returncode = code = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        process.stderr.close()
        if spent is not None and code == 130:
            interrupted += 1
            taken = usage.ru_utime + usage.ru_stime - spent
            assert taken <= 1.0 * min(threads, os.cpu_count()), f"{taken:.1f} s"
            assert said.count("\n") <= 1, said
        else:  # the work was done; Python, on its way out, ignores the signal or ends of it
            assert code in (0, -signal.SIGINT), said
            assert said == ""
        look(stage, large, out, done=code != 130)
    assert interrupted >= request.config.getoption("stops") // 2, "no trial met the work"


def look(stage, place, out, done):
    """What is at the final name is whole, and nothing is left beside it."""
    left = [path.name for path in out.parent.glob(".*")]
    assert not left, left
    if stage.startswith("train"):
        for checkpoint in (out / "checkpoints").glob("0*"):
            folder.check_folder(checkpoint)
    elif stage != "evaluate":
        assert out.exists() == done
