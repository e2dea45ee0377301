"""What PPO adds to an adapter made by supervised fine-tuning: both on the same seeds of the dev and the test fold.

A run that was stopped goes on: training from its last checkpoint, playing from the episodes that are stored. More iterations
(``--iterations``) go on from a run that is done, with other episodes of the evaluation since its adapter is another::

    python benchmarks/ppo.py --adapter adapters/babyai-sft --iterations 30 --seeds 100
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

from gym_text_policies.backends.loading import RECORD, read_adapter
from gym_text_policies.bench import BenchConfig, run, versions
from gym_text_policies.options import add_fields
from gym_text_policies.report.runs import Variant, read_runs
from gym_text_policies.store import write_atomically
from gym_text_policies.training.lora import environment_record
from gym_text_policies.training.ppo import PPOConfig, train

RESULTS = Path(__file__).parent / "results"
FOLDS = ("dev", "test")
_TASKS = ("goto", "pickup", "open", "putnext", "pick_up_seq_go_to")


@dataclass(frozen=True)
class Config:
    """What is trained, and on what it is compared."""

    adapter: str = "adapters/babyai-sft"
    """The adapter to begin with: one that ships, or a folder."""
    environments: tuple[str, ...] = tuple(f"BabyAIText-v0?task={task}" for task in _TASKS)
    """Environments of both."""
    iterations: int = 30
    """Of PPO."""
    episodes: int = 20
    """Episodes of each iteration, of all environments in turn."""
    learning_rate: float = 3e-5
    """Of the adapter."""
    dev_every: int = 10
    """Iterations between plays of the dev fold, which choose the adapter; these seeds are compared as well, the test fold's not."""
    dev_episodes: int = 10
    """Episodes of each environment there."""
    first_seed: int = 600
    """Seed of the first episode that is trained on: after those of the adapter's own data."""
    seeds: int = 100
    """Episodes of each environment and fold that are compared, greedy."""
    folder: str = "runs/ppo-benchmark"
    """Run folder."""
    result: str = "ppo"
    """Name of the result files."""


def trained(config: Config) -> Path:
    """Return the adapter that PPO has made; training goes on where it was stopped."""
    folder = Path(config.folder) / "training"
    done = folder / "adapter" / RECORD
    if done.is_file() and json.loads(done.read_text("utf-8"))["made_by"]["ppo"]["iterations"] == config.iterations:
        return done.parent
    names = ("environments", "iterations", "episodes", "learning_rate", "dev_every", "dev_episodes", "first_seed")
    learning = {name: getattr(config, name) for name in names}
    base, _ = read_adapter(config.adapter)
    return train(PPOConfig(str(folder), model=base, adapter=config.adapter, **learning))


def play(config: Config, adapter: Path, fold: str) -> dict[str, dict[str, Variant]]:
    """Play what is missing of both adapters in a fold; return environment -> SFT or PPO -> its episodes."""
    number = json.loads((adapter / RECORD).read_text("utf-8"))["made_by"]["ppo"]["iterations"]
    folder = Path(config.folder) / f"played-after-{number}" / fold
    rows = {"SFT": {"model": config.adapter}, "PPO": {"model": str(adapter)}}
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(rows, file)  # JSON is YAML
        file.flush()
        played = {"environments": config.environments, "variants": file.name, "folder": str(folder), "fold": fold}
        run(BenchConfig(**played, seeds=0, llm_seeds=config.seeds))
    found: dict[str, dict[str, Variant]] = {}
    for variant in read_runs([folder]).variants:
        if variant.policy in rows:
            found.setdefault(variant.environment, {})[variant.policy] = variant
    return found


def compared(variants: dict[str, Variant]) -> dict[str, Any]:
    """Return the figures of both on the seeds that both have played, and exact tests of the pairs.

    The test of success is McNemar's, exact: among the seeds that one of the two won, each of them is as probable to be the winner.
    The test of returns is the sign test, among the seeds whose returns differ; fewer steps give a higher return.
    """
    sft, ppo = ({e.seed: e for e in variants[name].episodes if e.error is None} for name in ("SFT", "PPO"))
    seeds = sorted(sft.keys() & ppo.keys())
    won = {name: [each[seed].outcome == "won" for seed in seeds] for name, each in (("SFT", sft), ("PPO", ppo))}
    pairs = list(zip(won["SFT"], won["PPO"], strict=True))
    gains = [ppo[seed].total_reward - sft[seed].total_reward for seed in seeds]
    rows = {name: variants[name].row for name in ("SFT", "PPO")}
    return {
        "seeds": len(seeds),
        "success": {name: sum(wins) / max(len(wins), 1) for name, wins in won.items()},
        "success_interval": {name: row["success_interval"] for name, row in rows.items()},
        "return": {name: row["return"] for name, row in rows.items()},
        "length": {name: row["length"] for name, row in rows.items()},
        "won_by_ppo_alone": pairs.count((False, True)),
        "won_by_sft_alone": pairs.count((True, False)),
        "p_success": exact(pairs.count((False, True)), pairs.count((True, False))),
        "p_return": exact(sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)),
    }


def exact(ups: int, downs: int) -> float:
    """Return the two-sided probability of a split at least as uneven, if up and down are equally probable.

    >>> exact(5, 0), exact(0, 0)
    (0.0625, 1.0)
    """
    return float(binomtest(ups, ups + downs, 0.5).pvalue) if ups + downs else 1.0


def lines_of(record: dict[str, Any]) -> Iterator[str]:
    """Yield the table in Markdown."""
    yield "| fold | environment | seeds | success SFT | PPO | won by PPO, SFT alone | p | return SFT, PPO | p | length SFT, PPO |"
    yield "|---" * 10 + "|"
    for row in record["rows"]:
        success = (
            "{:.2f} [{:.2f}, {:.2f}]".format(row["success"][name], *(row["success_interval"][name] or (0.0, 1.0)))
            for name in ("SFT", "PPO")
        )
        returns, lengths = ("{SFT:.2f}, {PPO:.2f}".format(**row[name]) for name in ("return", "length"))
        wins = f"{row['won_by_ppo_alone']}, {row['won_by_sft_alone']}"
        tests = [f"{row[name]:.3g}" for name in ("p_success", "p_return")]
        cells = [row["fold"], row["environment"], str(row["seeds"]), *success, wins, tests[0], returns, tests[1], lengths]
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield "p: McNemar's exact test of success and the sign test of returns, on the same seeds; not corrected for their number."
    yield f"Made by `{record['command']}`."


def main() -> None:
    """Train, play, compare and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_fields(parser, Config)
    config = Config(**vars(parser.parse_args()))
    adapter = trained(config)
    rows = [
        {"fold": fold, "environment": environment, **compared(variants)}
        for fold in FOLDS
        for environment, variants in play(config, adapter, fold).items()
    ]
    made = json.loads((adapter / RECORD).read_text("utf-8"))
    command = shlex.join(["python", "benchmarks/ppo.py", *sys.argv[1:]])
    record = {"command": command, "versions": versions(), "ran_on": environment_record(), "rows": rows, "curve": made["curve"]}
    lines = list(lines_of(record))
    write_atomically(RESULTS / f"{config.result}.json", json.dumps(record, indent=2) + "\n")
    write_atomically(RESULTS / f"{config.result}.md", "\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
