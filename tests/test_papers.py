"""The papers' rows: each is trainable, its JSON says what was done, the report shows it."""

import dataclasses
import gzip
import hashlib
import json
import sys
from pathlib import Path

import pytest
import runs

import fastnplm
from fastnplm import plan
from fastnplm.command.train import SIZES, network_sizes

# The suite is run from a checkout and never installed; last, so that it hides no installed module.
sys.path.append(str(Path(__file__).parents[1]))

from bench import summary
from bench.papers import __main__ as command
from bench.papers import ablation, defaults, report, rows, run

SETTINGS = {field.name for field in dataclasses.fields(fastnplm.Settings)}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Corpora under the names of the true ones, of a few hundred words."""
    folder = tmp_path_factory.mktemp("data")
    for seed, corpus in enumerate(rows.CORPORA):
        files, _ = rows.texts(corpus, folder)
        for part, path in files.items():
            path.parent.mkdir(exist_ok=True)
            words = runs.text({"train": 600}.get(part, 150), 30, seed=3 * seed + len(part))
            path.write_bytes(gzip.compress(words.encode()))
    return folder


@pytest.fixture(scope="module")
def made(data, tmp_path_factory):
    """The results of two short runs of a row, and their folder."""
    folder = tmp_path_factory.mktemp("results")
    small = {"dim": 4, "hidden": 5, "epochs": 2, "precision": "float32", "batch_size": 32}
    row = rows.ROWS["MLP1"].changed(small)
    return [run.run("MLP1", row, data, folder, seed=s, quiet=True) for s in (0, 1)], folder


@pytest.mark.parametrize("name", rows.ROWS)
def test_every_row_can_be_trained(name):
    row = rows.ROWS[name]
    plan.check(valid="valid.txt", **row.settings)
    words = fastnplm.Vocabulary.from_words(["<unk>", "<s>", "</s>", "a"], counts=[1, 0, 2, 3])
    assert fastnplm.NPLM(words, **row.size).context == row.size["context"]
    assert row.corpus in rows.CORPORA
    assert set(rows.KENLM[row.corpus]) == {3, 5}


def test_the_json_says_what_was_done(made, data):
    (first, second), folder = made
    assert json.loads((folder / "MLP1-seed0.json").read_text()) == json.loads(json.dumps(first))
    files, _ = rows.texts("brown", data)
    assert first["data"] == {
        part: hashlib.sha256(path.read_bytes()).hexdigest() for part, path in files.items()
    }
    assert first["size"]["dim"] == 4
    assert first["settings"]["schedule"]["name"] == "inverse"
    assert len(first["epochs"]) == 2
    assert first["seconds"] > 0
    assert first["machine"]["cores"] >= 1
    found = first["perplexity"]
    assert set(found) == {
        "network", "kneser-ney 3", "kneser-ney 5", "mixture fixed", "mixture context"
    }  # fmt: skip
    # Weights found on a text do no worse there than either member alone.
    for member in ("network", "kneser-ney 5"):
        assert found["mixture fixed"]["valid"] <= found[member]["valid"] * (1 + 1e-9)
    assert found["network"] != second["perplexity"]["network"]
    assert found["kneser-ney 5"] == second["perplexity"]["kneser-ney 5"]


def test_the_perplexity_is_that_of_the_saved_model(made, data):
    (first, _), folder = made
    files, _ = rows.texts("brown", data)
    model = fastnplm.load(folder / "models" / "MLP1-seed0")
    again = fastnplm.evaluate(model, files["test"]).perplexity
    assert first["perplexity"]["network"]["test"] == again


def test_a_finished_row_is_not_trained_again(made, data):
    (first, _), folder = made
    small = {"dim": 4, "hidden": 5, "epochs": 2, "precision": "float32", "batch_size": 32}
    row = rows.ROWS["MLP1"].changed(small)
    again = run.run("MLP1", row, data, folder, seed=0, quiet=True)
    assert again["epochs"] == first["epochs"]
    assert again["perplexity"] == first["perplexity"]
    # what it took is what both took
    clock = json.loads((folder / "models" / "MLP1-seed0.clock.json").read_text())
    assert first["cpu_seconds"] < again["cpu_seconds"] == clock["cpu_seconds"]
    assert first["seconds"] < again["seconds"] == clock["seconds"]


def test_a_schedule_can_be_changed_from_the_command_line():
    row = rows.ROWS["brown-best"].changed({"schedule": {"name": "linear", "floor": 0.1}})
    assert row.settings["schedule"] == fastnplm.Schedule("linear", floor=0.1)


def test_runs_that_choose_settings_leave_the_test_part_alone(data, tmp_path, capsys):
    arguments = [
        "brown-best", "--data", str(data), "--output", str(tmp_path), "--as", "try",
        "--valid-only", "--set", "dim=4", "--set", "hidden=5", "--set", "epochs=1",
        "--set", "precision=float32",
    ]  # fmt: skip
    assert command.main(arguments) == 0
    capsys.readouterr()
    (record,) = report.read(tmp_path)
    assert record["row"] == "try"
    assert "test" not in record["data"]
    assert all(set(found) == {"valid"} for found in record["perplexity"].values())
    assert report.markdown([record]).strip() == ""


def test_an_ensemble_is_no_worse_on_the_text_it_is_tuned_on(made, data):
    runs_, folder = made
    found = run.ensemble(["MLP1-seed0", "MLP1-seed1"], "brown", data, folder)["perplexity"]
    for one in runs_:
        alone = one["perplexity"]["network"]["valid"]
        assert found["ensemble"]["valid"] <= alone * (1 + 1e-9)
    same = run.ensemble(["MLP1-seed0", "MLP1-seed1"], "brown", data, folder, "both")
    assert same["perplexity"] == found
    names = ["brown-ensemble", "both"]
    kept = [json.loads((folder / f"{name}.json").read_text()) for name in names]
    assert [each.pop("row") for each in kept] == names
    assert kept[0] == kept[1]


def test_the_report_shows_each_row_beside_the_paper(made, tmp_path):
    results, _ = made
    text = report.markdown(results)
    for record in results:
        assert f"| MLP1 | {record['seed']} | " in text
        assert f"{record['perplexity']['network']['test']:.2f}" in text
    assert "268" in text
    assert "257" in text
    ratio = results[0]["perplexity"]
    ratio = ratio["network"]["test"] / ratio["kneser-ney 3"]["test"]
    line = f"MLP1, seed 0, to the Kneser-Ney trigram: {ratio:.2f}; in the paper 268/323 = 0.83"
    assert line in text
    report.draw(results, tmp_path / "curves.svg")
    assert "</svg>" in (tmp_path / "curves.svg").read_text()


def test_the_best_rows_go_into_readme(made):
    results, _ = made
    best = dict(results[0], row="ptb-best", corpus="ptb", seed=0)
    text = report.summary([best, dict(best, seed=1)])
    figures = best["perplexity"]
    line = next(line for line in text.splitlines() if line.startswith("| PTB"))
    assert (
        f"| {figures['network']['test']:.2f} | {figures['mixture context']['test']:.2f} |" in line
    )
    assert text.count("| PTB") == 1
    page = "before\n<!-- papers -->\nold\n<!-- end -->\nafter\n"
    filled = summary.fill_block(page, "papers", text)
    assert filled == f"before\n<!-- papers -->\n{text}<!-- end -->\nafter\n"
    with pytest.raises(ValueError, match="no <!-- papers --> block"):
        summary.fill_block("nothing", "papers", text)


def test_the_ablation_changes_one_thing_a_run(data, tmp_path):
    for name, change in ablation.CHANGES.items():
        given = {k: v for k, v in (ablation.PLAIN | change).items() if k in SETTINGS}
        plan.check(valid="valid.txt", **given)
        changed = set(change) - {"lr"}  # a rule's rate belongs to the rule
        assert len(changed) <= 1 + name.count(", ") or name.startswith(("both", "defaults"))
    texts = ablation.sample(data, tmp_path, every=2)
    chosen = {name: ablation.CHANGES[name] for name in ("plain", "tied", "defaults")}
    short = {name: {"epochs": 1} | change for name, change in chosen.items()}
    found = ablation.measure(*texts, short, min_count=1, tell=lambda line: None)
    assert [run["name"] for run in found["runs"]] == list(chosen)
    assert [len(run["curve"]) for run in found["runs"]] == [1, 1, 12]
    text = ablation.markdown(found)
    assert f"| plain | {found['runs'][0]['perplexity']:.2f} | +0.0 % |" in text


def test_an_unknown_setting_or_row_is_refused(capsys):
    with pytest.raises(SystemExit, match="no setting depth"):
        rows.ROWS["MLP1"].changed({"depth": 3})
    for arguments in (["MLP2"], ["MLP1", "--set", "dim"], ["MLP1", "--set", "dim=3"], ["ensemble"]):
        with pytest.raises(SystemExit) as stopped:
            command.main(arguments)
        assert stopped.value.code == 2
        capsys.readouterr()


def test_rows_are_compared_on_equal_terms():
    """The papers' rows differ in nothing but the sizes of table 1."""
    bengio = [rows.ROWS[name] for name in ("MLP1", "MLP3", "MLP5", "MLP7", "MLP9")]
    assert len({json.dumps(rows.plain(row.settings), sort_keys=True) for row in bengio}) == 1
    assert all(dataclasses.replace(row, size={}).corpus == "brown" for row in bengio)


def test_the_defaults_are_judged_by_twenty_runs_of_their_network():
    assert defaults.FORM.items() <= network_sizes(dict.fromkeys(SIZES | defaults.FORM)).items()
    for trials, more, expected in (
        (defaults.TRIALS, defaults.FINALS, 20),
        (defaults.LARGE_TRIALS, defaults.LARGE_FINALS, 22),
        (defaults.LITTLE_TRIALS, 0, 20),
    ):
        made = {json.dumps(rows.plain(given), sort_keys=True) for given in trials.values()}
        assert 1 + len(made) + more == expected
        for given in trials.values():
            assert not rows.SIZES & set(given)
            plan.check(valid="valid.txt", **rows.split(given)[1])


def test_a_study_of_the_defaults_goes_on_where_it_was(data, tmp_path):
    few = {"as the defaults": {}, "sgd": {"optimizer": "sgd", "lr": 1e-3}}
    told = []
    text = rows.texts("brown", data)

    def study(trials):
        return defaults.measure("brown", *text, tmp_path, trials=trials, short=2, tell=told.append)

    study({})
    found = study(few)
    names = ["defaults", "as the defaults", "sgd", "sgd, in full"]
    assert [run["name"] for run in found["runs"]] == names
    assert len(told) == len(names)
    assert json.loads((tmp_path / "defaults-brown.json").read_text()) == found
    first, second, third, fourth = found["runs"]
    assert first["perplexity"] == min(first["curve"])
    assert third["settings"]["optimizer"]["lr"] == 1e-3
    assert second["epochs"] == third["epochs"] == 2
    assert fourth["settings"] == third["settings"] | {"epochs": first["epochs"]}
    # what was logged with other settings is run again
    again = study(few | {"sgd": {"optimizer": "sgd", "lr": 1e9}})
    assert len(told) == len(names) + 1
    assert first in again["runs"]
    assert again["runs"][-1]["diverged"]
    assert "| sgd | – | – | 0 of 2, diverged |" in defaults.markdown(again)
    text = defaults.markdown(found)
    assert f"| sgd | {third['perplexity']:.2f} | +" in text
    assert report.read(tmp_path) == []


def test_on_little_text_every_trial_is_run_in_full(data, tmp_path):
    trials = {"sgd": {"optimizer": "sgd", "lr": 1e-3}}  # far behind, and not given up
    found = defaults.measure(
        "brown", *rows.texts("brown", data), tmp_path, trials=trials, tell=lambda line: None
    )
    usual, other = found["runs"]
    assert len(other["curve"]) == other["epochs"] == usual["epochs"]
    assert found["leeway"] is None


def test_the_best_trials_are_run_in_full():
    made = [
        {"name": name, "epochs": 3, "curve": curve, "perplexity": min(curve, default=None)}
        for name, curve in {
            "as the defaults": [9, 8, 5],
            "given up": [4.0],
            "third": [9, 8, 7.5],
            "first": [9, 8, 6],
            "second": [9, 8, 7],
            "diverged": [],
        }.items()
    ]
    trials = {run["name"]: {"lr": 1} for run in made} | {"as the defaults": {}}
    assert defaults._best(made, trials, 2) == ["first", "second"]
    assert defaults._best(made, trials, 4) == ["first", "second", "third"]


def test_what_falls_behind_the_runs_of_its_length_is_given_up():
    logged = [{"epochs": 4, "curve": [100.0, 90.0, 80.0, 79.0]}, {"epochs": 8, "curve": [50.0] * 8}]
    judge = defaults.Pruning(logged, 4)
    behind = {1: 106.0, 2: 93.0, 3: 82.5, 4: 81.5}
    for epoch, perplexity in behind.items():
        assert judge({"epoch": epoch, "valid_perplexity": perplexity})
        assert not judge({"epoch": epoch, "valid_perplexity": perplexity - 1.2})
    assert not defaults.Pruning(logged, 5)({"epoch": 1, "valid_perplexity": 1e9})
