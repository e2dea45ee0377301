"""What pytest does not collect: pages and modules of libraries that are not installed here; see ``tests/bridges``."""

from importlib.util import find_spec
from pathlib import Path

NAMES = {
    "inspect_ai": ("inspect", "inspect_ai", "walker"),
    "openenv": ("openenv", "mcp_tools", "mcp_http"),
    "skyrl_gym": ("levels", "skyrl", "verl"),
}
"""By library, the names of its page, modules and tests, where they differ from the library's own."""
collect_ignore = [
    path
    for library in ("art", "inspect_ai", "nemo_gym", "openenv", "skyrl_gym", "textworld", "trl", "verifiers")
    if find_spec(library) is None
    for name in NAMES.get(library, (library,))
    for path in (
        f"docs/{name}.md",
        f"docs/{name}_package",
        *(() if name == "levels" else (f"gym_text_policies/bridges/{name}.py",)),  # its module needs no library
        f"tests/bridges/{name}.py",
        *map(str, Path(__file__).parent.glob(f"tests/bridges/{name}_*tests.py")),
        *map(str, Path(__file__).parent.glob(f"docs/{name}_*.py")),
    )
]
