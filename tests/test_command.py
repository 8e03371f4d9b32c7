"""The command: what its words print, how they fail, and the exit codes."""

import dataclasses
import errno
import inspect
import io
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import fastnplm
from fastnplm.command import commands, one_line
from fastnplm.command.options import SIZE
from fastnplm.command.output import Reading
from fastnplm.command.train import SIZES

TEXT = "我 今天 想 喝 茶\nthe cat sat on the mat\nthe dog sat\n" * 40
SMALL = ["--dim", "4", "--hidden", "8", "--context", "2", "--min-count", "1"]
WORDS = [
    "demo", "inspect", "prepare", "verify", "train", "evaluate", "score", "predict", "generate",
    "neighbors", "analogy", "export", "plot", "ngram", "mix", "bench", "info",
]  # fmt: skip


def run(*arguments, code=0, **options):
    """Run the command here; its exit code must be ``code``. Returns the result."""
    result = CliRunner().invoke(
        commands, [str(a) for a in arguments], prog_name="fastnplm", **options
    )
    assert result.exit_code == code, (result.output, result.exception)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def refused(*arguments, code=1):
    """Run the command, which must fail with one line on standard error; returns the line."""
    result = run(*arguments, code=code)
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("fastnplm: ")
    assert result.stdout == ""
    return lines[0]


def start(*arguments, **options):
    """Start the command as a process of its own."""
    environment = {**os.environ, **options.pop("env", {})}
    environment["PYTHONPATH"] = str(Path(fastnplm.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-m", "fastnplm", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
        preexec_fn=_heeds_interrupts, **options,
    )  # fmt: skip


def _heeds_interrupts():
    """A shell that ran the tests in the background has made them deaf to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with texts, a model and its corpus; tests do not change them."""
    place = tmp_path_factory.mktemp("command")
    (place / "corpus.txt").write_text(TEXT, encoding="utf-8")
    (place / "valid.txt").write_text(TEXT[:200], encoding="utf-8")
    run("prepare", place / "corpus.txt", "-o", place / "corpus", "--min-count", "1", "--quiet")
    run(
        "train", place / "corpus.txt", "-o", place / "model", "--valid", place / "valid.txt",
        *SMALL, "--epochs", 3, "--lr", 0.01, "--quiet",
    )  # fmt: skip
    run("ngram", place / "corpus", "-o", place / "kn", "--order", 3, "--quiet")
    return place


# --- help and usage -----------------------------------------------------------------------------


def test_every_word_has_help_with_an_example():
    assert list(commands.commands) == WORDS
    for word in WORDS:
        text = run(word, "--help").stdout
        assert f"  fastnplm {word}" in text
        assert text == run(word, "-h").stdout


def test_every_word_can_be_quiet_and_those_with_results_speak_json():
    for word, command in commands.commands.items():
        options = {name for parameter in command.params for name in parameter.opts}
        assert "--quiet" in options or word == "bench"
        assert "--json" in options or word in ("verify", "export", "plot", "bench")


def test_train_has_every_option_of_the_design():
    names = {parameter.name for parameter in commands.commands["train"].params}
    assert names >= {
        "context", "dim", "hidden", "direct", "loss", "negatives", "optimizer", "lr", "batch_size",
        "epochs", "dropout", "weight_decay", "patience", "min_count", "max_vocab", "init",
        "buffer_mib", "threads", "seed", "kernels", "precision", "checkpoint_every", "resume",
        "valid", "out", "overwrite", "quiet",
    }  # fmt: skip


def test_train_has_every_setting_of_the_library_with_its_default():
    train = commands.commands["train"]
    options = train.make_context("train", ["corpus.txt", "-o", "model"]).params
    for field in dataclasses.fields(fastnplm.Settings):
        if field.name == "on_epoch":  # a function: of Python alone
            continue
        assert options[field.name] == field.default or field.name == "out", field.name
    model = inspect.signature(fastnplm.NPLM).parameters
    for name, default in SIZES.items():
        assert default == model[name].default
    assert set(model) - set(options) == {"vocabulary", "dtype", "output_bias"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-word"],
        ["train"],
        ["train", "x.txt"],
        ["train", "x.txt", "-o", "m", "--epochs", "0"],
        ["train", "x.txt", "-o", "m", "--epochs", "many"],
        ["train", "x.txt", "-o", "m", "--loss", "hinge"],
        ["train", "x.txt", "-o", "m", "--dropout", "1"],
        ["predict", "m", "a", "-k", "0"],
        ["analogy", "m", "a", "b"],
        ["export", "m", "out.vec"],
    ],
)
def test_wrong_usage_exits_with_2(arguments):
    result = run(*arguments, code=2)
    assert "Error: " in result.stderr
    assert result.stdout == ""


def test_options_are_read_under_their_python_names_too(place, tmp_path):
    run(
        "train", place / "corpus.txt", "-o", tmp_path / "m", "--min_count", 1, "--batch_size", 7,
        "--epochs", 1, "--dim", 3, "--hidden", 5, "--buffer_mib", 1, "--quiet",
    )  # fmt: skip
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert (config["dim"], config["hidden"], config["context"]) == (3, 5, 4)


def test_help_is_quick():
    """Best of a few starts, in processor time: what else the machine does is no fault of ours."""

    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    best = np.inf
    for _ in range(5):
        before = used()
        process = start("--help")
        assert b"train" in process.communicate()[0]
        best = min(best, used() - before)
    assert 0 < best < 0.3


def test_help_imports_neither_numpy_nor_matplotlib():
    code = (
        "import sys, fastnplm.command\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "assert not loaded & {'numpy', 'matplotlib', 'safetensors', 'numba', 'tqdm'}, loaded\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(fastnplm.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_version():
    assert run("--version").stdout == f"fastnplm {fastnplm.__version__}\n"


# --- words --------------------------------------------------------------------------------------


def test_training_shows_perplexities_and_keeps_the_model(place, tmp_path):
    out = tmp_path / "m"
    result = run(
        "train", place / "corpus.txt", "-o", out, "--valid", place / "valid.txt", *SMALL,
        "--epochs", 2,
    )  # fmt: skip
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert lines[0].startswith("corpus: 560 words and 120 sentence ends")
    assert lines[1].startswith("training: softmax, adam at 0.001, 2 epochs, batches of 256,")
    assert [line.split(":")[0] for line in lines[2:4]] == ["epoch 1", "epoch 2"]
    assert "valid perplexity" in lines[2]
    assert {entry.name for entry in out.iterdir()} == {
        "config.json", "vocabulary.tsv", "parameters.safetensors", "history.jsonl",
        "manifest.json",
    }  # fmt: skip
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in history] == [1, 2]


def test_training_tells_a_program_what_it_did(place, tmp_path):
    result = run(
        "train", place / "corpus", "-o", tmp_path / "m", "--valid", place / "valid.txt",
        "--dim", 4, "--hidden", 8, "--epochs", 2, "--json", "--quiet",
    )  # fmt: skip
    assert result.stderr == ""
    found = json.loads(result.stdout)
    assert found["updates"] == 2 * 3
    assert len(found["epochs"]) == 2
    assert found["epochs"][-1]["valid_perplexity"] > 1


def test_text_and_prepared_corpus_give_the_same_model(place, tmp_path):
    common = ["--dim", 4, "--hidden", 8, "--epochs", 1, "--quiet"]
    run("train", place / "corpus.txt", "-o", tmp_path / "a", "--min-count", 1, *common)
    run("train", place / "corpus", "-o", tmp_path / "b", *common)
    name = "parameters.safetensors"
    assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_blend_of_corpora(place, tmp_path):
    other = tmp_path / "other"
    (tmp_path / "other.txt").write_text("the dog sat on the mat\n" * 50, encoding="utf-8")
    run("prepare", tmp_path / "other.txt", "-o", other, "--vocabulary", place / "corpus", "-q")
    given = ["train", "--blend", f"{place / 'corpus'}:0.25", f"{other}:0.75", *SMALL[:-2]]
    done = run(*given, "-o", tmp_path / "blended", "--epochs", 1)
    assert "examples an epoch (25.0%)" in done.stderr
    assert "examples an epoch (75.0%)" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["blended", "other", "other.txt"]
    message = refused("train", "--blend", f"{tmp_path / 'other.txt'}:2", "-o", tmp_path / "m")
    assert "a blend is made of prepared corpora" in message
    message = refused("train", "--blend", f"{other}:-1", "-o", tmp_path / "m")
    assert "must be a positive number" in message
    run("prepare", tmp_path / "other.txt", "-o", tmp_path / "own", "-q")
    message = refused(
        "train", "--blend", other, tmp_path / "own", "-o", tmp_path / "m", *SMALL[:-2]
    )
    assert "was encoded with another vocabulary" in message
    message = refused(*given, "--min-count", 2, "-o", tmp_path / "m")
    assert "--min-count has no effect" in message


@pytest.mark.parametrize(
    ("given", "bytes"),
    [
        ("2000000", 2_000_000), ("1MiB", 1 << 20), ("1.5GiB", 3 << 29), ("64m", 64 << 20),
        ("800MB", 800_000_000), ("2 kb", 2000), ("1G", 1 << 30), ("3B", 3), ("1TiB", 1 << 40),
    ],
)  # fmt: skip
def test_sizes_on_the_command_line(given, bytes):
    assert SIZE.convert(given, None, None) == bytes


def test_memory_and_threads_change_no_byte_of_a_corpus(place, tmp_path):
    words = np.random.default_rng(0).integers(0, 60_000, 200_000).tolist()
    text = tmp_path / "many.txt"
    text.write_text("".join(f"word-number-{n}{chr(10) if n % 9 == 0 else ' '}" for n in words))
    run("prepare", text, "-o", tmp_path / "plain")
    for given in (["--memory", "1MiB", "--threads", 1], ["--memory", "2MiB", "--threads", 2]):
        out = tmp_path / f"made-{given[1]}"
        done = run("prepare", text, "-o", out, *given)
        assert re.search(r"\d+ tables of counts put on disk \(all counts are exact\)", done.stderr)
        for name in ("tokens.bin", "vocabulary.tsv"):
            assert (out / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    report = json.loads(run("prepare", text, "-o", out, *given, "--overwrite", "--json").stdout)
    assert report["spills"] > 0
    done = run("train", text, "-o", tmp_path / "model", *SMALL[:-2], "--epochs", 1, *given)
    assert "tables of counts put on disk" in done.stderr
    assert "needs 1,048,576 or more" in refused(
        "prepare", text, "-o", tmp_path / "x", "--memory", "4k"
    )
    run("prepare", text, "-o", tmp_path / "x", "--memory", "much", code=2)
    assert not (tmp_path / "x").exists()


def test_options_that_a_prepared_corpus_has_decided_are_refused(place, tmp_path):
    line = refused("train", place / "corpus", "-o", tmp_path / "m", "--min-count", 2)
    assert "--min-count has no effect" in line
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("loss", ["ns", "nce"])
def test_the_loss_is_swapped_by_one_word(place, tmp_path, loss):
    result = run(
        "train", place / "corpus", "-o", tmp_path / "m", "--dim", 4, "--hidden", 8,
        "--loss", loss, "--negatives", 3, "--power", 0.5, "--shared", 4, "--epochs", 1,
    )  # fmt: skip
    assert f"epoch 1: {loss} loss" in result.stderr
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert config["loss"]["negatives"] == 3
    assert config["loss"]["power"] == 0.5
    report = json.loads(run("evaluate", tmp_path / "m", place / "valid.txt", "--json").stdout)
    assert "log_normalizer_mean" in report
    assert ("perplexity_uncorrected" in report) == (loss == "ns")
    text = run("evaluate", tmp_path / "m", place / "valid.txt").stdout
    assert "log Z" in text


@pytest.mark.parametrize(
    ("said", "tied", "direct"),
    [([], True, True), (["--tied"], True, False), (["--direct"], False, True),
     (["--no-tied"], False, False), (["--no-direct"], False, False),
     (["--tied", "--direct"], True, True)],
)  # fmt: skip
def test_the_form_is_tied_and_direct_unless_one_of_them_is_said(
    place, tmp_path, said, tied, direct
):
    run(
        "train", place / "corpus.txt", "-o", tmp_path / "m", *SMALL, "--epochs", 1, "--quiet", *said
    )
    model = fastnplm.load(tmp_path / "m")
    assert (model.tied, model.direct) == (tied, direct)


def test_hashed_n_grams(place, tmp_path):
    said = ["--context", 3, "--hashed", 50, "--epochs", 1]
    result = run("train", place / "corpus.txt", "-o", tmp_path / "m", *SMALL, *said)
    assert "hashed n-grams at 0.15, 0.6 of them left out" in result.stderr
    assert fastnplm.load(tmp_path / "m").hashed_weight.shape == (50, 4)
    run("evaluate", tmp_path / "m", place / "valid.txt")
    run("predict", tmp_path / "m", "a b")
    further = ["train", place / "valid.txt", "-o", tmp_path / "n", "--init", tmp_path / "m"]
    line = refused(*further, "--hashed", 60)
    assert "--hashed is 60, but" in line
    assert "has hashed 50; leave it out" in line
    run(*further, "--hashed-dropout", 0.1, "--epochs", 1)
    dry = [*SMALL, *said, "--hashed", 200_000, "--dry-run", "--json"]
    parts = json.loads(
        run("train", place / "corpus.txt", "-o", tmp_path / "d", *dry, "--quiet").stdout
    )
    assert parts["memory"]["parameters"] > 200_000 * 4 * 4


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (["--hashed", 50, "--context", 2], "need a context of at least 3 words"),
        (["--hashed-lr", 0.1], "hashed_lr is 0.1, but the model has no hashed n-grams"),
        (["--hashed-dropout", 0.1], "hashed_dropout is 0.1, but the model has no hashed n-grams"),
    ],
)
def test_n_grams_that_cannot_be_are_refused_before_the_text_is_read(place, tmp_path, said, words):
    # one line and no "corpus: ..." before it
    assert words in refused("train", place / "corpus.txt", "-o", tmp_path / "m", *said)


def test_settings_of_the_noise_need_a_loss_that_draws_it(place, tmp_path):
    line = refused("train", place / "corpus", "-o", tmp_path / "m", "--shared", 4)
    assert "--shared is of a sampled loss, and none is named; pass --loss ns or nce" in line
    assert not (tmp_path / "m").exists()


def test_a_model_is_trained_further(place, tmp_path):
    result = run(
        "train", place / "valid.txt", "-o", tmp_path / "more", "--init", place / "model",
        "--epochs", 1,
    )  # fmt: skip
    assert "epoch 1" in result.stderr
    first, second = fastnplm.load(place / "model"), fastnplm.load(tmp_path / "more")
    assert first.vocabulary.fingerprint == second.vocabulary.fingerprint
    assert not np.array_equal(first.embedding, second.embedding)
    for options in (["--dim", 5], ["--no-direct"], ["--min-count", 2]):
        refused("train", place / "valid.txt", "-o", tmp_path / "x", "--init", place / "model",
                *options)  # fmt: skip


def test_resuming_goes_on_and_without_a_checkpoint_begins(place, tmp_path):
    whole = ["train", place / "corpus", "--dim", 4, "--hidden", 8, "--checkpoint-every", 2]
    run(*whole, "-o", tmp_path / "whole", "--epochs", 2, "--quiet")
    run(*whole, "-o", tmp_path / "m", "--epochs", 2, "--resume", "--quiet")  # from the beginning
    again = run(*whole, "-o", tmp_path / "m", "--epochs", 2, "--resume", "--json", "--quiet")
    assert json.loads(again.stdout)["updates"] == 6
    a, b = (tmp_path / name / "parameters.safetensors" for name in ("whole", "m"))
    assert a.read_bytes() == b.read_bytes()
    line = refused(*whole, "-o", tmp_path / "m", "--resume", "--batch-size", 9, "--quiet")
    assert "batch_size" in line


def test_evaluation_agrees_with_the_library(place):
    report = fastnplm.evaluate(fastnplm.load(place / "model"), place / "valid.txt")
    text = run("evaluate", place / "model", place / "valid.txt").stdout
    assert f"{report.perplexity:.4f}" in text
    assert f"({report.tokens:,} tokens)" in text
    found = json.loads(run("evaluate", place / "model", place / "valid.txt", "--json").stdout)
    assert list(found) == [
        "perplexity", "tokens", "sentences", "oov", "perplexity_without_oov", "nats",
    ]  # fmt: skip
    assert found["nats"] == report.nats
    assert found["perplexity"] == pytest.approx(np.exp(found["nats"] / found["tokens"]))


def test_a_corpus_of_another_vocabulary_is_refused_by_name(place, tmp_path):
    (tmp_path / "big.txt").write_text("".join(f"word{i}\n" for i in range(1000)))
    run("prepare", tmp_path / "big.txt", "-o", tmp_path / "big", "--min-count", 1, "--quiet")
    for word in (
        ["evaluate", place / "model", tmp_path / "big"],
        ["train", tmp_path / "big", "-o", tmp_path / "m", "--init", place / "model"],
        ["train", place / "corpus", "-o", tmp_path / "m", "--valid", tmp_path / "big"],
    ):
        line = refused(*word, "--quiet")
        assert str(tmp_path / "big") in line
        assert str(place / ("corpus" if "--valid" in word else "model")) in line
        assert not (tmp_path / "m").exists()


def test_score_answers_every_line(place, tmp_path):
    lines = ["the cat sat", "", "我 今天", "unheard of", "  \t "]
    (tmp_path / "s.txt").write_text("\n".join(lines), encoding="utf-8")
    found = run("score", place / "model", tmp_path / "s.txt").stdout.split()
    model = fastnplm.load(place / "model")
    assert len(found) == len(lines)
    for value, line in zip(found, lines, strict=True):
        assert float(value) == pytest.approx(model.score(line), abs=2e-6)
    piped = run("score", place / "model", "-", input="\n".join(lines).encode()).stdout.split()
    assert piped == found
    given = run("score", place / "model", tmp_path / "s.txt", "--json").stdout.splitlines()
    first = json.loads(given[3])
    assert first["oov"] == 2
    assert first["tokens"] == 3
    raw = run("score", place / "model", tmp_path / "s.txt", "--unnormalized")
    assert "raw scores" in raw.stderr
    assert [float(value) for value in raw.stdout.split()] == pytest.approx(
        [model.raw_score(line) for line in lines], abs=2e-6
    )
    named = run("score", place / "model", tmp_path / "s.txt", "--unnormalized", "--json").stdout
    assert "log10_score" in named
    assert "probability" not in named


def test_score_names_the_line_that_cannot_be_read(place, tmp_path):
    (tmp_path / "s.txt").write_bytes(b"the cat\nthe \xe9\n")
    assert "s.txt:2" in run("score", place / "model", tmp_path / "s.txt", code=1).stderr
    (tmp_path / "s.txt").write_bytes(b"the cat\nthe </s>\n")
    assert "s.txt:2" in run("score", place / "model", tmp_path / "s.txt", code=1).stderr
    run("score", place / "model", tmp_path / "s.txt", "--reserved", "whitespace")


def test_prediction(place):
    model = fastnplm.load(place / "model")
    found = json.loads(run("predict", place / "model", "我 今天", "-k", 3, "--json").stdout)
    assert [(x["word"], x["probability"]) for x in found] == model.predict("我 今天", k=3)
    lines = run("predict", place / "model", "我 今天", "-k", 3).stdout.splitlines()
    assert lines[0].endswith(f"  {found[0]['word']}")
    every = json.loads(run("predict", place / "model", "", "-k", 10**6, "--json").stdout)
    assert len(every) == len(model.vocabulary) - 2
    assert not {"<s>", "<unk>"} & {item["word"] for item in every}
    some = json.loads(run("predict", place / "model", "", "-k", 99, "--unk", "--json").stdout)
    assert "<unk>" in {item["word"] for item in some}


def test_generation_is_a_function_of_the_seed(place):
    word = ["generate", place / "model", "--prompt", "the cat", "--seed", 3, "--length", 8]
    first = run(*word).stdout
    assert first == run(*word).stdout
    assert first.startswith("the cat")
    several = run(*word, "-n", 5, "--json").stdout.splitlines()
    assert [json.loads(line)["seed"] for line in several] == [3, 4, 5, 6, 7]
    assert len({tuple(json.loads(line)["words"]) for line in several}) > 1
    for options in (["--temperature", -1], ["--temperature", "nan"], ["--top-k", 0],
                    ["--top-p", 1.5]):  # fmt: skip
        refused(*word, *options)


def test_vectors(place, tmp_path):
    vectors = fastnplm.load(place / "model").vectors
    found = json.loads(run("neighbors", place / "model", "茶", "-k", 4, "--json").stdout)
    assert [(x["word"], x["similarity"]) for x in found] == vectors.most_similar("茶", topn=4)
    found = json.loads(run("analogy", place / "model", "cat", "sat", "dog", "--json").stdout)
    assert found[0]["word"] == vectors.analogy("cat", "sat", "dog")[0][0]
    assert "zebra" in refused("neighbors", place / "model", "zebra")
    run("export", place / "model", "--format", "word2vec", tmp_path / "out.vec")
    head = (tmp_path / "out.vec").read_text(encoding="utf-8").splitlines()
    assert head[0] == f"{len(vectors)} 4"
    assert len(head) == len(vectors) + 1
    run("export", place / "model", "--format", "word2vec", tmp_path / "out.bin", "--binary")
    assert (tmp_path / "out.bin").read_bytes().startswith(head[0].encode() + b"\n")


def test_count_models_and_mixtures_are_asked_as_networks_are(place, tmp_path):
    mixed = tmp_path / "mixed"
    run("mix", place / "model", place / "kn", "--tune", place / "valid.txt", "-o", mixed)
    run("ngram", place / "valid.txt", "-o", tmp_path / "kn2", "--vocabulary", place / "model")
    for model in (place / "kn", mixed, tmp_path / "kn2"):
        loaded = fastnplm.load(model)
        report = json.loads(run("evaluate", model, place / "valid.txt", "--json").stdout)
        found = fastnplm.evaluate(loaded, place / "valid.txt").perplexity
        assert report["perplexity"] == pytest.approx(found, rel=1e-12)
        scores = run("score", model, place / "valid.txt").stdout.split()
        assert float(scores[0]) == pytest.approx(loaded.score("我 今天 想 喝 茶"), abs=1e-6)
        assert run("predict", model, "the", "-k", 2).stdout.count("\n") == 2
        assert "no word vectors" in refused("neighbors", model, "the")
        refused("score", model, place / "valid.txt", "--unnormalized")
    weights = json.loads(
        run("mix", place / "model", place / "kn", "--tune", place / "valid.txt", "-o", mixed,
            "--overwrite", "--json").stdout
    )["weights"]  # fmt: skip
    assert np.sum(weights) == pytest.approx(1)
    run("export", place / "kn", "--format", "arpa", tmp_path / "kn.arpa", "--quiet")
    run("ngram", tmp_path / "kn.arpa", "--arpa", "-o", tmp_path / "again", "--quiet")
    scores = [
        run("score", model, place / "valid.txt").stdout
        for model in (place / "kn", tmp_path / "again")
    ]
    assert scores[0] == scores[1]
    refused("export", place / "model", "--format", "arpa", tmp_path / "x")
    refused("export", place / "kn", "--format", "word2vec", tmp_path / "x")


@pytest.mark.parametrize("name", ["curves.png", "curves.svg"])
def test_plot(place, tmp_path, name):
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    for out in ("first", "second"):
        (tmp_path / out).mkdir()
        run("plot", place / "model", "-o", tmp_path / out / name, "--quiet")
    data = (tmp_path / "first" / name).read_bytes()
    assert data == (tmp_path / "second" / name).read_bytes()
    assert data.startswith(b"\x89PNG" if name.endswith("png") else b"<?xml")
    assert [entry.name for entry in (tmp_path / "first").iterdir()] == [name]


def test_plot_refuses_what_it_cannot_draw(place, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    assert ".png" in refused("plot", place / "model", "-o", tmp_path / "c.gif")
    assert "history.jsonl" in refused("plot", tmp_path / "none", "-o", tmp_path / "c.png")
    (tmp_path / "history.jsonl").write_text('{"epoch": 1}\n')
    assert "history.jsonl:1" in refused("plot", tmp_path, "-o", tmp_path / "c.png")
    assert not (tmp_path / "c.png").exists()


def test_info_names_what_runs(place):
    found = json.loads(run("info", "--json").stdout)
    assert found["fastnplm"] == fastnplm.__version__
    assert found["kernels"] == fastnplm.kernels.load("auto").NAME
    assert found["threads"] >= 1
    assert found["instruction_set"]
    assert "openblas" in found["blas"].lower() or found["blas"]
    lines = run("info").stdout.splitlines()
    assert len(lines) == len(found)


def test_inspection_of_a_text(place, tmp_path):
    done = run("inspect", place / "corpus.txt", "--plot", tmp_path / "ranks.png")
    assert "lines         120; 0 blank, 117 duplicates" in done.stdout
    assert "suggestion    --min-count" in done.stdout
    assert (tmp_path / "ranks.png").read_bytes().startswith(b"\x89PNG")
    report = json.loads(run("inspect", place / "corpus.txt", "--json").stdout)
    assert (report["words"], report["types"], report["seen_once"]) == (560, 11, 0)
    by_character = ["inspect", "-", "--segment", "char", "--lowercase", "--json"]
    report = json.loads(run(*by_character, input="Aa 茶\n".encode()).stdout)
    assert (report["words"], report["types"]) == (3, 2)


def test_inspection_refuses_what_it_cannot_do(place, tmp_path):
    message = refused("inspect", place / "corpus.txt", "--plot", tmp_path / "ranks.txt")
    assert "is neither a .png nor a .svg file" in message
    assert "no such file" in refused("inspect", tmp_path / "missing.txt")
    (tmp_path / "blank.txt").write_text("\n\n", encoding="utf-8")
    assert "no tokens" in refused("inspect", tmp_path / "blank.txt")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_reading_shows_bytes_speed_and_the_time_left():
    stream = Terminal()
    bar = Reading(stream=stream)
    for done in range(0, 10_000_001, 1_000_000):
        bar(done, 20_000_000, done // 6)
        bar._bar.refresh()
    bar.close()
    assert re.search(
        r"50%.*10.0M/20.0M \[00:0\d<00:0\d, .*1,666,666 words, [\d,]+ words/s", stream.getvalue()
    )


def test_reading_tells_a_line_where_there_is_no_terminal(monkeypatch, capsys):
    clock = iter([0.0, 10.0, 40.0, 50.0])
    monkeypatch.setattr("fastnplm.command.output.time.monotonic", lambda: next(clock))
    reading = Reading()
    for done in (1_000, 2_000, 3_000):
        reading(done, 4_000, done // 5)
    reading.close()
    assert capsys.readouterr().err == (
        "reading: 50% of 4,000 bytes, 400 words, 10 words/s, 0:40 left\n"
    )


def test_verify_finds_a_flipped_bit(place, tmp_path):
    run("verify", place / "corpus", place / "model", place / "kn")
    for name, file in (("corpus", "tokens.bin"), ("model", "parameters.safetensors")):
        shutil.copytree(place / name, tmp_path / name)
        path = tmp_path / name / file
        data = bytearray(path.read_bytes())
        data[-3] ^= 1
        path.write_bytes(data)
        assert file in refused("verify", tmp_path / name)


def test_prepare_tells_what_it_met(place, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a b a\n\n\na caf\xe9\n")
    line = refused("prepare", tmp_path / "a.txt", "-o", tmp_path / "c")
    assert "a.txt:4" in line
    assert not (tmp_path / "c").exists()
    result = run(
        "prepare", tmp_path / "a.txt", "-o", tmp_path / "c", "--min-count", 2, "--errors",
        "replace",
    )  # fmt: skip
    assert "2 blank lines skipped, 1 damaged bytes replaced" in result.stderr
    found = json.loads(
        run("prepare", tmp_path / "a.txt", "-o", tmp_path / "d", "--min-count", 2, "--encoding",
            "latin-1", "--json").stdout
    )  # fmt: skip
    assert found["tokens"] == 7
    assert found["oov"] == 2
    with fastnplm.Corpus.open(tmp_path / "d") as corpus:
        assert corpus.vocabulary.words[3:] == ["a"]
    run("prepare", place / "valid.txt", "-o", tmp_path / "v", "--vocabulary", tmp_path / "d")
    with fastnplm.Corpus.open(tmp_path / "v") as corpus:
        assert corpus.vocabulary.words[3:] == ["a"]
    refused("prepare", place / "valid.txt", "-o", tmp_path / "w", "--vocabulary", tmp_path / "d",
            "--min-count", 2)  # fmt: skip


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "{missing}", "-o", "{out}"],
        ["train", "{text}", "-o", "{out}", "--valid", "{missing}"],
        ["train", "{text}", "-o", "{out}", "--init", "{missing}"],
        ["prepare", "{missing}", "-o", "{out}"],
        ["evaluate", "{model}", "{missing}"],
        ["evaluate", "{missing}", "{text}"],
        ["score", "{model}", "{missing}"],
        ["predict", "{missing}", "the"],
        ["generate", "{missing}"],
        ["neighbors", "{missing}", "the"],
        ["analogy", "{missing}", "a", "b", "c"],
        ["export", "{missing}", "--format", "word2vec", "{out}"],
        ["verify", "{missing}"],
        ["ngram", "{missing}", "-o", "{out}"],
        ["mix", "{model}", "{missing}", "--tune", "{text}", "-o", "{out}"],
    ],
)
def test_a_missing_file_is_named_in_one_line(place, tmp_path, arguments):
    names = {
        "missing": tmp_path / "no such file",
        "out": tmp_path / "out",
        "text": place / "valid.txt",
        "model": place / "model",
    }
    line = refused(*(argument.format(**names) for argument in arguments))
    assert str(tmp_path / "no such file") in line
    assert not (tmp_path / "out").exists()
    assert list(tmp_path.iterdir()) == []


def test_a_corpus_is_no_model_and_a_model_no_corpus(place, tmp_path):
    assert str(place / "corpus") in refused("evaluate", place / "corpus", place / "valid.txt")
    assert str(place / "model") in refused("train", place / "model", "-o", tmp_path / "m")
    refused("verify", tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        ["--lr", "-1"],
        ["--lr", "nan"],
        ["--patience", "2"],
        ["--schedule", "plateau"],
        ["--checkpoint-every", "soon"],
        ["--overwrite", "--resume"],
        ["--loss", "ns", "--power", "nan"],
    ],
)
def test_settings_are_refused_before_the_text_is_read(tmp_path, options):
    os.mkfifo(tmp_path / "pipe")  # whoever opens it waits for ever
    refused("train", tmp_path / "pipe", "-o", tmp_path / "m", *options)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("output", ["missing/folder/model", "unwritable/model", "existing"])
def test_fc51_an_unusable_output_is_refused_before_the_text_is_read(tmp_path, output):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "existing").mkdir()
    (tmp_path / "existing" / "precious").write_text("mine")
    (tmp_path / "unwritable").mkdir()
    (tmp_path / "unwritable").chmod(0o500)
    out = tmp_path / output
    if output.startswith("unwritable") and os.access(tmp_path / "unwritable", os.W_OK):
        out = Path("/proc/model")  # where not even root may write
    began = time.monotonic()
    line = refused("train", tmp_path / "pipe", "-o", out)
    assert time.monotonic() - began < 1
    assert str(out.parent) in line
    # Not even when it may be replaced: it is no model.
    refused("train", tmp_path / "pipe", "-o", out, "--overwrite")
    assert (tmp_path / "existing" / "precious").read_text() == "mine"


def test_fc51_an_existing_model_is_kept_without_overwrite_or_resume(place, tmp_path):
    word = ["train", place / "corpus", "-o", tmp_path / "m", "--dim", 2, "--hidden", 2,
            "--epochs", 1, "--quiet"]  # fmt: skip
    run(*word)
    before = (tmp_path / "m" / "parameters.safetensors").read_bytes()
    line = refused(*word, "--seed", 1)
    assert "--overwrite" in line
    assert "--resume" in line
    assert (tmp_path / "m" / "parameters.safetensors").read_bytes() == before
    run(*word, "--seed", 1, "--overwrite")
    assert (tmp_path / "m" / "parameters.safetensors").read_bytes() != before


@pytest.mark.parametrize("text", ["", "\n\n   \n\t\n"])
def test_fc07_empty_and_blank_texts(place, tmp_path, text):
    (tmp_path / "t.txt").write_text(text)
    began = time.monotonic()
    for word in (
        ["train", tmp_path / "t.txt", "-o", tmp_path / "m"],
        ["train", tmp_path / "t.txt", "-o", tmp_path / "m", "--init", place / "model"],
        ["prepare", tmp_path / "t.txt", "-o", tmp_path / "m"],
        ["evaluate", place / "model", tmp_path / "t.txt"],
        ["ngram", tmp_path / "t.txt", "-o", tmp_path / "m"],
    ):
        line = refused(*word)
        assert "no tokens" in line
        assert "nan" not in line
    assert time.monotonic() - began < 5 * 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.txt"]


def test_fc08_a_threshold_that_removes_every_word(tmp_path):
    (tmp_path / "c.txt").write_text("a b c\nc b a\n")
    began = time.monotonic()
    line = refused("train", tmp_path / "c.txt", "-o", tmp_path / "m", "--min-count", 5)
    assert time.monotonic() - began < 2
    assert all(part in line for part in ("min_count 5", "3 different", "2 times"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.txt"]


def test_fc60_folders_with_spaces_and_other_alphabets(tmp_path):
    place = tmp_path / "données du 文"
    place.mkdir()
    text = place / "корпус текст.txt"
    text.write_text("a b c\n" * 5)
    model, corpus = place / "модель ü", place / "語料 corpus"
    run("prepare", text, "-o", corpus, "--quiet")
    result = run("train", corpus, "-o", model, "--valid", text, "--dim", 2, "--hidden", 3)
    assert str(model) in result.stderr
    assert run("evaluate", model, text).stdout.startswith("perplexity")
    assert run("predict", model, "a").stdout
    assert len(run("score", model, text).stdout.split()) == 5
    run("neighbors", model, "a")
    run("export", model, "--format", "word2vec", place / "векторы 1.vec")
    run("plot", model, model, "-o", place / "曲线 1.svg")
    run("verify", model, corpus)
    run("ngram", corpus, "-o", place / "счёт", "--order", 2, "--quiet")
    run("mix", model, place / "счёт", "--tune", text, "-o", place / "смесь", "--quiet")
    run("evaluate", place / "смесь", text)
    (place / "плохой é.txt").write_bytes(b"a \xff\n")
    assert str(place / "плохой é.txt") in refused("evaluate", model, place / "плохой é.txt")


def test_the_words_of_an_error():
    assert one_line(fastnplm.Error("a\nb")) == "a b"
    missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "x.txt")
    assert one_line(missing) == "x.txt: No such file or directory"
    assert one_line(OSError("strange")) == "strange"
    assert "out of memory" in one_line(MemoryError())
    assert one_line(fastnplm.Error()) == "Error"


def test_a_full_disk_is_one_line(place, tmp_path):
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [sys.executable, "-m", "fastnplm", "info"],
            stdout=full, stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(fastnplm.__file__).parents[1])},
        )  # fmt: skip
    assert process.returncode == 1
    assert b"No space left" in process.stderr
    assert b"Traceback" not in process.stderr


# --- terminals, pipes and signals ---------------------------------------------------------------


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""},
    ],
)
def test_words_that_the_terminal_lacks_are_escaped(place, environment):
    environment = {"PYTHONIOENCODING": "", "LANG": "", **environment}
    expected = fastnplm.load(place / "model").predict("我 今天", k=99)
    process = start("predict", place / "model", "我 今天", "-k", 99, "--json", env=environment)
    out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    # The question was understood and the answer is whole, whatever the encoding.
    assert [(x["word"], x["probability"]) for x in json.loads(out)] == expected
    process = start("predict", place / "model", "我 今天", "-k", 99, env=environment)
    out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert "想" in out.decode() or "\\u60f3" in out.decode()
    process = start("neighbors", place / "model", "没有", env=environment)
    out, err = process.communicate()
    assert process.returncode == 1
    assert "没有" in err.decode() or "\\u6ca1\\u6709" in err.decode()


def test_a_dry_run_shows_what_training_takes_and_does_nothing(place, tmp_path):
    word = ["train", place / "corpus", "-o", tmp_path / "m", "--dry-run"]
    said = run(*word, "--checkpoint-every", 10, "--json")
    shown = json.loads(said.stdout)
    assert shown["memory"]["total"] == sum(shown["memory"].values()) // 2 > 0
    assert shown["disk"]["checkpoints"] > 0
    assert shown["disk_free"] > 0
    lines = run(*word).stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["memory", "disk"]
    assert not (tmp_path / "m").exists()
    assert run(*word, "--checkpoint-every", "never", code=1).stdout == ""


def test_a_reader_that_leaves_early_is_no_trouble(place):
    process = start("generate", place / "model", "-n", 100000, "--length", 3)
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=60) in (0, 1)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
def test_signals_stop_training_with_a_checkpoint(place, tmp_path, number, code):
    word = ["train", place / "corpus", "-o", tmp_path / "m", "--dim", 4, "--hidden", 8,
            "--epochs", 100000, "--checkpoint-every", "1h"]  # fmt: skip
    process = start(*word)
    for line in process.stderr:
        if line.startswith(b"epoch 3"):
            break
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert b"Traceback" not in err
    assert len(list((tmp_path / "m" / "checkpoints").iterdir())) >= 1
    fastnplm.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
def test_signals_while_text_is_read_leave_nothing_behind(place, tmp_path, number, code):
    (tmp_path / "temporary").mkdir()
    process = start(
        "evaluate", place / "model", "-", stdin=subprocess.PIPE,
        env={"TMPDIR": str(tmp_path / "temporary")},
    )  # fmt: skip
    process.stdin.write(b"the cat\n")
    process.stdin.flush()
    deadline = time.monotonic() + 30
    spooled = "fastnplm-text-*/standard-input"
    while not any((tmp_path / "temporary").glob(spooled)) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert b"Traceback" not in err
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("missing/folder/model", "missing/folder is not a folder"),
        ("/proc/self/model", "cannot write in /proc/self"),  # refused even to root
        ("existing", "existing exists; pass --overwrite"),
    ],
)
def test_fc_51_an_unusable_output_is_refused_before_the_corpus_is_read(
    tmp_path, monkeypatch, output, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "existing").mkdir()
    (tmp_path / "existing" / "precious.txt").write_text("kept")
    # The corpus is not even there: the output is what the message is about.
    result = CliRunner().invoke(commands, ["train", "no-such-corpus.txt", "-o", output])
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert (tmp_path / "existing" / "precious.txt").read_text() == "kept"
