"""What pytest does not collect: pages and modules of libraries that are not installed here; see ``tests/libraries``."""

from importlib.util import find_spec

MODULES = {"skyrl_gym": ("skyrl", "verl")}
"""Modules of ``gym_text_policies/bridges`` whose names are not the library's."""
collect_ignore = [
    path
    for library in ("art", "inspect_ai", "nemo_gym", "openenv", "skyrl_gym", "textworld", "trl", "verifiers")
    if find_spec(library) is None
    for path in (
        f"docs/{library}.md",
        f"docs/{library}_package",
        *(f"gym_text_policies/bridges/{name}.py" for name in MODULES.get(library, (library,))),
    )
]
collect_ignore += ["docs/evaluators.md", "docs/levels.md"]  # of several libraries; ``tests/libraries`` takes them apart
collect_ignore_glob = ["docs/trl_*.py"] if find_spec("trl") is None else []
