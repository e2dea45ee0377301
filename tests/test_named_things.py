"""What docstrings and pages name in backticks is there: modules, files, and names of the code."""

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
CODE = [path for folder in ("gym_text", "gym_text_policies", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))]
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")), *sorted((ROOT / "docs").glob("*.md"))]
OF_OTHERS = {
    *("AgentLoopOutput", "AsyncGRPOTrainer", "GeneratorOutput", "MAX_LOGPROB_TOKEN_IDS", "SFTTrainer", "cov", "faulthandler"),
    *(
        "continuous_mountain_car",
        "heuristic",
        "io_struct.py",
        "prompt_logprobs",
        "qwen2_5.jinja",
        "rms_norm",
        "scheduler_output_processor_mixin.py",
        "utils.py",
    ),
}
"""Names in other projects' code, which stand in backticks here."""
FOLDERS = ("gym_text/", "gym_text_policies/", "tests/", "benchmarks/", "docs/")


def backticked(text):
    """Return what stands in single backticks."""
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)


def in_docstrings(path):
    """Return what stands in backticks in the docstrings of a module and in the strings under its fields and constants."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    texts = [node.value.value for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    return [name for text in texts if isinstance(text, str) for name in backticked(text)]


@functools.cache
def known_names():
    """Return all names and short strings of the code."""
    names = {"None", "True", "False"}
    for path in [*CODE, *sorted((ROOT / "tests").rglob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            parts = [getattr(node, key, None) for key in ("name", "id", "attr", "arg", "asname", "module", "value")]
            names |= {word for part in parts if isinstance(part, str) for word in part.split(".") if word.isidentifier()}
    return names


@functools.cache
def known_files():
    """Return the paths of all files of the repository's own folders, from its root."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    return {path.relative_to(ROOT).as_posix() for path in [*found, *ROOT.glob("*")]}


def is_there(dotted):
    """Return whether a dotted name begins with a module of ours; what stands behind it has to be a name of the code."""
    parts = dotted.split(".")
    for length in range(len(parts), 1, -1):
        path = "/".join(parts[:length])
        if {f"{path}.py", f"{path}/__init__.py"} & known_files():
            return set(parts[length:]) <= known_names()
    return False


def is_missing(name):
    """Return whether a name in backticks should lead to something and does not."""
    if name.rpartition("/")[2] in OF_OTHERS or name.rpartition(".")[2] in OF_OTHERS:
        return False
    if re.fullmatch(r"[\w./-]+\.(py|jinja)", name):
        is_users = name.rpartition("/")[2].startswith(("my", "theirs"))
        return not is_users and not any(f"/{file}".endswith(f"/{name}") for file in known_files())
    if re.fullmatch(r"[\w./-]+", name) and name.startswith(FOLDERS):
        return not any(ROOT.glob(f"{name.rstrip('/')}*"))
    if re.fullmatch(r"(gym_text|gym_text_policies)(\.\w+)+", name):
        return not is_there(name)
    return False


def is_unknown(name):
    """Return whether a name in a docstring is no name of the code."""
    last = name.rpartition(".")[2]
    return bool(re.fullmatch(r"_?[A-Za-z]\w*(\.\w+)*", name)) and last not in known_names() and last not in OF_OTHERS


def test_docstrings_name_what_is_there():
    named = {str(path.relative_to(ROOT)): in_docstrings(path) for path in CODE}
    wrong = {path: [name for name in names if is_missing(name) or is_unknown(name)] for path, names in named.items()}
    assert {path: names for path, names in wrong.items() if names} == {}


def test_pages_name_what_is_there():
    without_code = re.compile(r"^```.*?^```", flags=re.DOTALL | re.MULTILINE)
    texts = {path.name: without_code.sub("", path.read_text("utf-8")) for path in PAGES}
    wrong = {name: [word for word in backticked(text) if is_missing(word)] for name, text in texts.items()}
    assert {name: words for name, words in wrong.items() if words} == {}


def test_what_is_not_there_is_found():
    there = ["gym_text.spec", "gym_text/spec.py", "spec.py"]
    missing = ["gym_text.nothing", "tests/test_nothing.py", "benchmarks/results/nothing.md"]
    assert [name for name in there + missing if is_missing(name)] == missing
