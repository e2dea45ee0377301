"""The notebooks have the outputs of their own code, show no machine, and run."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
PICTURE = re.compile(r'data:image/\w+;base64,[\w+/=]*|"image/png": "[^"]*"')
MACHINE = re.compile(r"/(?:home|root|tmp|Users|work|opt|usr|var)/|site-packages|\.venv| at 0x[0-9a-f]+")
MOST_BYTES = 1_000_000


@pytest.fixture(scope="module")
def notebooks():
    spec = importlib.util.spec_from_file_location("run_notebooks", DOCS / "run_notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outputs(path):
    return [output for cell in json.loads(path.read_text("utf-8"))["cells"] for output in cell.get("outputs", ())]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_the_outputs_of_its_own_code_and_no_error(notebooks, path):
    notebook = json.loads(path.read_text("utf-8"))
    assert notebook["metadata"]["code"] == notebooks.digest(notebook), f"python docs/run_notebooks.py {path.stem}"
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)], "from top to bottom"
    kinds = {output["output_type"] for output in outputs(path)}
    assert kinds <= {"stream", "execute_result", "display_data"}
    assert any("text/html" in output.get("data", {}) for output in outputs(path)) and path.stat().st_size < MOST_BYTES
    if importlib.util.find_spec("nbformat"):
        import nbformat

        nbformat.validate(nbformat.read(path, as_version=4))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_nothing_of_the_machine_that_ran_it(path):
    assert MACHINE.findall(PICTURE.sub("", path.read_text("utf-8"))) == []


def test_a_notebook_runs_in_a_new_kernel_and_prints_what_is_stored(notebooks, tmp_path):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    stored = json.loads((DOCS / "notebooks/own-environment.ipynb").read_text("utf-8"))
    cut = next(i for i, cell in enumerate(stored["cells"]) if "BenchConfig" in "".join(cell["source"]))
    kept = stored["cells"][:cut]
    noisy = "import sys\nprint('a bar', file=sys.stderr)\nprint('one')\nprint('two')"
    extra = {"cell_type": "code", "id": "x", "metadata": {}, "execution_count": None, "outputs": [], "source": noisy}
    path = tmp_path / "short.ipynb"
    path.write_text(
        json.dumps({**stored, "cells": [*({**cell, "outputs": []} if "outputs" in cell else cell for cell in kept), extra]})
    )
    notebooks.run(path)
    run = json.loads(path.read_text("utf-8"))["cells"]
    assert [cell.get("outputs") for cell in run[:-1]] == [cell.get("outputs") for cell in kept]
    assert ["".join(output["text"]) for output in run[-1]["outputs"]] == ["one\ntwo\n"], "without progress, and joined"
    assert not list(Path.cwd().glob("my_games.py"))
