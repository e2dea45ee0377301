"""What pytest does not collect: pages and modules of libraries that are not installed here; see ``tests/bridges``."""

from importlib.util import find_spec
from pathlib import Path

collect_ignore = [
    path
    for library in ("inspect_ai", "openenv", "textworld", "trl", "verifiers")
    if find_spec(library) is None
    for path in (
        f"docs/{library.removesuffix('_ai')}.md",
        f"docs/{library}_package",
        f"gym_text_policies/bridges/{library}.py",
        f"tests/bridges/{library}_tests.py",
        *map(str, Path(__file__).parent.glob(f"docs/{library}_*.py")),
    )
]
