"""Learning curves: read from the files of training and search."""

import base64
import json

import pytest

from gym_text import UsageError
from gym_text_policies.report import write_report
from gym_text_policies.report.curves import lines as lines_of
from gym_text_policies.report.curves import read_curves
from gym_text_policies.report.plots import learning_curves


def test_learning_curves_come_from_the_files_that_training_leaves(tmp_path):
    (tmp_path / "sft").mkdir()
    (tmp_path / "sft" / "metrics.jsonl").write_text("".join(f'{{"step": {n}, "loss": {2 / n}}}\n' for n in range(1, 1001)))
    (tmp_path / "ppo").mkdir()
    (tmp_path / "ppo" / "metrics.jsonl").write_text('{"iteration": 1, "return": 0.5}\n{"iteration": 2, "return": 0.7}\n{"iter')
    (tmp_path / "search").mkdir()
    lines = [{"key": str(i), "index": i, "value": value, "successes": 0} for i, value in enumerate((1.0, 3.0, 2.0))]
    (tmp_path / "search" / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    curves = {(curve.run, curve.name): curve for curve in read_curves(tmp_path)}
    assert set(curves) == {
        *(("sft", "loss"), ("ppo", "return")),
        *(("search", "return of the evaluation"), ("search", "best return so far")),
    }
    assert curves["search", "best return so far"].points == ((1.0, 1.0), (2.0, 3.0), (3.0, 3.0))
    assert len(curves["sft", "loss"].points) <= 400
    assert curves["ppo", "return"].over == "iteration"
    assert "Learning curves" in write_report([tmp_path], tmp_path / "r.html").read_text()
    shown = base64.b64decode(learning_curves([*curves.values()]).partition("base64,")[2]).decode()
    assert shown.count(">best return so far<") == 1 and ">sft<" in shown and ">iteration<" in shown


def test_runs_that_differ_in_their_seeds_are_one_line_in_a_band(tmp_path):
    played = {"grpo-0": [0.2, 0.6, 1.0], "grpo-1": [0.4, 0.4, 0.6], "other": [0.1, 0.1, 0.1]}
    for number, (name, successes) in enumerate(played.items()):
        (tmp_path / name).mkdir()
        settings = {"seed": number, "first_seed": 100 * number, "learning_rate": 0.1 if name == "other" else 0.2}
        (tmp_path / name / "config.json").write_text(json.dumps(settings))
        lines = [
            {"iteration": n, "episodes": 8 * n, "minutes": n * (1 + number), "dev_success": value, "entropy": 1.0 / n}
            for n, value in enumerate(successes, 1)
        ]
        (tmp_path / name / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    curves = list(read_curves(tmp_path))
    assert {(curve.name, curve.over) for curve in curves} == {("dev_success", "episodes"), ("entropy", "episodes")}
    line, alone = lines_of([curve for curve in curves if curve.name == "dev_success"])
    assert (line.label, alone.label, alone.band) == ("grpo, 2 runs", "other", ())
    assert [x for x, _ in line.points] == [8, 16, 24] and [y for _, y in line.points] == pytest.approx([0.3, 0.5, 0.8])
    assert [value for _, *values in line.band for value in values] == pytest.approx([0.2, 0.4, 0.4, 0.6, 0.6, 1.0])
    assert "the lowest run to the highest" in write_report([tmp_path], tmp_path / "r.html").read_text()


def test_one_iteration_is_a_curve_and_a_folder_without_anything_is_named_and_left_out(tmp_path, caplog):
    ppo, empty = tmp_path / "ppo", tmp_path / "empty"
    for folder in (ppo, empty):
        folder.mkdir()
    (ppo / "metrics.jsonl").write_text('{"iteration": 1, "return": 0.5}\n')
    (curve,) = read_curves(ppo)
    assert curve.points == ((1.0, 0.5),)
    page = write_report([ppo, empty], tmp_path / "r.html").read_text()
    assert "Learning curves" in page and str(empty) not in page and f"{empty} is left out" in caplog.text
    with pytest.raises(UsageError, match="neither is in"):
        write_report([empty], tmp_path / "r.html")


def test_a_damaged_curve_is_an_error_that_names_the_file(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("[\n")
    with pytest.raises(UsageError, match=r"metrics\.jsonl: expected records"):
        write_report([tmp_path], tmp_path / "r.html")
