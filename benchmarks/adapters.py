"""What the shipped adapters reach on the test fold, greedily and drawn, beside their base, chance and the expert.

python benchmarks/adapters.py --seeds 10
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from gym_text_policies.backends.loading import ADAPTERS, RECORD
from gym_text_policies.bench import BenchConfig, run
from gym_text_policies.store import write_atomically

RESULTS = Path(__file__).parent / "results"


def rows(name: str, drawn: bool, base_seeds: int) -> dict[str, dict[str, object]]:
    """Return the language models of the table, as `load_policy` takes them; the base is asked as the adapter is."""
    asked = json.loads((ADAPTERS / name / RECORD).read_text("utf-8"))["asked"]
    found: dict[str, dict[str, object]] = {
        name: {"model": f"adapters/{name}"},
        "smollm2, asked alike": {"model": "smollm2", "seeds": base_seeds, **asked},
    }
    return {**({f"{name}, drawn": {"model": f"adapters/{name}", "temperature": 1.0}} if drawn else {}), **found}


def environments(name: str) -> tuple[str, ...]:
    """Return what an adapter was trained on, in its last stage or in an earlier one, without the fold."""
    record = json.loads((ADAPTERS / name / RECORD).read_text("utf-8"))
    stages = [record, *record.get("earlier", ())]
    data = {environment for stage in stages for environment in stage["made_by"]["data"]["environments"]}
    return tuple(sorted(environment.replace("?fold=train&", "?").replace("?fold=train", "") for environment in data))


def main() -> None:
    """Play and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default="runs/adapters", help="run folder; a second run goes on")
    parser.add_argument("--adapter", default="babyai-sft", help="which of the shipped ones")
    parser.add_argument("--seeds", type=int, default=100, help="episodes of each environment and row")
    parser.add_argument("--base-seeds", type=int, default=10, help="episodes of the base: it seldom ends one before the limit")
    parser.add_argument("--drawn", action="store_true", help="also play at temperature 1")
    arguments = parser.parse_args()
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(rows(arguments.adapter, arguments.drawn, arguments.base_seeds), file)  # JSON is YAML
        file.flush()
        seeds = arguments.seeds
        played = {"folder": arguments.folder, "environments": environments(arguments.adapter), "variants": file.name}
        config = BenchConfig(**played, llm_seeds=seeds, seeds=seeds, batch=10)
        table, store = run(config)
    command = f"python benchmarks/adapters.py --adapter {arguments.adapter} --seeds {seeds} --base-seeds {arguments.base_seeds}"
    command += " --drawn" * arguments.drawn
    result = RESULTS / f"adapters_{arguments.adapter}.md"
    write_atomically(result, f"{table}\n\nMade by `{command}`.\n")
    record = json.loads((store.folder / "table.json").read_text("utf-8")) | {"command": command}
    record["config"] = {key: value for key, value in record["config"].items() if key not in ("variants", "folder")}
    write_atomically(result.with_suffix(".json"), json.dumps(record, indent=2) + "\n")
    print(table)


if __name__ == "__main__":
    main()
