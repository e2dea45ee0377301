"""Run the notebooks in ``docs/notebooks`` from top to bottom, and make pages of them. ``make docs`` does both."""

import hashlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).parent / "notebooks"
MOST_SECONDS = 900
"""Most seconds of a cell."""
_MOST_PLAIN = 80
"""Most characters of an output's plain text beside its HTML."""
_ADDRESS = re.compile(" at 0x[0-9a-f]+")
_FENCE = re.compile("`{3,}")


def code_of(notebook: dict[str, Any]) -> list[str]:
    """Return the code of each cell that has code."""
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def digest(notebook: dict[str, Any]) -> str:
    """Return a hash of the code. A notebook keeps that of the code that made its outputs."""
    return hashlib.sha256(json.dumps(code_of(notebook)).encode()).hexdigest()


def run(path: Path) -> None:
    """Run a notebook in a new kernel and an empty folder, and keep its outputs in its file, without progress and log.

    Raises:
        nbclient.exceptions.CellExecutionError: If a cell raises; the file stays as it is.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=MOST_SECONDS, kernel_name="python3", resources={"metadata": {"path": folder}})
        client.execute(stderr=subprocess.DEVNULL)  # of the kernel itself; what cells write there comes as outputs
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = {"kernelspec": kernel, "code": digest(notebook)}
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", {}  # the same in each run: a run changes only what is shown
        if cell.cell_type == "code":
            cell.outputs = joined(output for output in cell.outputs if not is_progress(output))
            for data in (output.data for output in cell.outputs if "text/html" in output.get("data", {})):
                data["text/plain"] = _ADDRESS.sub("", data.get("text/plain", "")[:_MOST_PLAIN])
    nbformat.validate(notebook)
    nbformat.write(notebook, path)


def is_progress(output: Any) -> bool:
    """Return whether an output is a bar or a log: text on stderr, or a widget."""
    data = output.get("data", {})
    return output.get("name") == "stderr" or any("widget-view" in kind for kind in data)


def joined(outputs: Iterable[Any]) -> list[Any]:
    """Return outputs in which text that a cell has printed in several parts is one."""
    parts: list[Any] = []
    for output in outputs:
        if parts and output["output_type"] == "stream" == parts[-1]["output_type"]:
            parts[-1]["text"] += output["text"]
        else:
            parts.append(output)
    return parts


def page_of(path: Path) -> str:
    """Return a notebook as a page of Markdown, with its stored outputs."""
    notebook = json.loads(path.read_text("utf-8"))
    parts: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            parts += [fenced(source, "python"), *map(shown, cell["outputs"])]
        else:
            parts.append(source.replace("](../", "](").replace(".ipynb)", ".md)"))
        if len(parts) == 1:
            parts.append(f"This page is the notebook `docs/notebooks/{path.name}`, as `make docs` has run it.")
    return "\n\n".join(filter(None, parts)) + "\n"


def shown(output: dict[str, Any]) -> str:
    """Return an output: HTML, a picture, or text."""
    if output["output_type"] == "stream":
        return fenced("".join(output["text"]).rstrip(), "text")
    data = {kind: "".join(value) if isinstance(value, list) else value for kind, value in output["data"].items()}
    html = data.get("text/html")
    if html is None and "image/png" in data:
        html = f'<img alt="" src="data:image/png;base64,{"".join(data["image/png"].split())}">'
    if html is None:
        return fenced(data.get("text/plain", ""), "text")
    return f'<div class="notebook-output md-typeset__scrollwrap">{html}</div>'


def fenced(text: str, language: str) -> str:
    """Return a text as a block of code."""
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in _FENCE.findall(text))])
    return f"{fence}{language}\n{text}\n{fence}"


def run_all(names: Iterable[str] = ()) -> None:
    """Run the notebooks of these names, or all, and say how long each took."""
    for path in [NOTEBOOKS / f"{name}.ipynb" for name in names] or sorted(NOTEBOOKS.glob("*.ipynb")):
        start = time.monotonic()
        print(f"{path.name} ...", end=" ", flush=True)
        run(path)
        print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    run_all(sys.argv[1:])
