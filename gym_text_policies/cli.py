"""The command line, `gym-text`: a table of commands. A command's module is imported when the command is used."""

from __future__ import annotations

import argparse
import difflib
import importlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal, NoReturn

from gym_text.errors import GymTextError, check_choice, import_extra, unknown_choice
from gym_text_policies.commands.options import add_fields, by_fields
from gym_text_policies.experiments.settings import read_settings
from gym_text_policies.files import check_characters
from gym_text_policies.sections import with_sections
from gym_text_policies.streams import ShownFormatter, prepare_streams, shown
from gym_text_policies.threads import settle_threads
from gym_text_policies.training.model.processes import is_first

_FILE = "file of settings"
"""Name of the parsed argument that is no field."""
_THREADS = "threads of torch"
"""The same of an option of all commands that may run a model."""
_WITHOUT_MODEL = ("envs", "make-games", "report", "average", "export", "completion")


@dataclass(frozen=True)
class Command:
    """One command: a config dataclass, whose fields are the options, and the function that takes it."""

    help: str
    """What it does, in half a line."""
    module: str
    """Module of both."""
    config: str
    """Name of the dataclass; its docstring and the strings under its fields are the command's help."""
    function: str = "run"
    """Name of the function. The text that it returns is printed; None prints nothing."""
    file: str = ""
    """Help for the YAML file that the command may take before its options; empty if it takes none."""

    def load(self) -> tuple[type[Any], Callable[[Any], str | None]]:
        """Import and return both."""
        module = importlib.import_module(self.module)
        return getattr(module, self.config), getattr(module, self.function)


EXAMPLES = {
    "envs": (
        "gym-text envs",
        "gym-text envs cooking",
    ),
    "play": (
        "gym-text play CookingWorldText-v0",
        "gym-text play 'BabyAIText-v0?task=goto' --first-seed 3",
    ),
    "make-games": (
        "gym-text make-games TextWorldCooking-v0 --episodes 20 --folds train dev test",
        "gym-text make-games 'TextWorldCooking-v0?difficulty=gata-10' --workers 4",
    ),
    "serve": (
        "gym-text serve CookingWorldText-v0",
        "gym-text serve 'BabyAIText-v0?task=goto' --port 8001 --max-sessions 128",
    ),
    "bench": (
        "gym-text bench --models smollm2 --environments 'BabyAIText-v0?task=goto' --llm-episodes 10",
        "gym-text bench --models my_policies:Mine sb3:ppo.zip --baselines random gold",
    ),
    "report": ("gym-text report runs/policies",),
    "run": (
        "gym-text run experiment.yaml",
        "gym-text run experiment.yaml --set agent.model=smollm2 experiment.episodes=3",
    ),
    "collect": (
        "gym-text collect --environments 'BabyAIText-v0?task=goto' --episodes 100",
        "gym-text collect --policy smollm2 --threshold 0.9 --folder runs/own",
    ),
    "sft": (
        "gym-text sft --data runs/data/rows",
        "gym-text sft --data runs/data/rows --dev-environments 'BabyAIText-v0?task=goto' --epochs 2",
    ),
    "dagger": ("gym-text dagger --adapter runs/sft/adapter --data runs/data/rows --rounds 2",),
    "search": ("gym-text search --environment MountainCarContinuousLLM-v0 --optimiser cma",),
    "aggrevate": ("gym-text aggrevate --adapter adapters/cookingworld-sft --iterations 10",),
    "average": ("gym-text average --adapters runs/a/adapter runs/b/adapter",),
    "merge": ("gym-text merge adapters/babyai-sft runs/merged",),
    "grpo": ("gym-text grpo --adapter runs/weak/adapter --environments 'BabyAIText-v0?task=goto' --iterations 20",),
    "ppo": ("gym-text ppo --adapter adapters/babyai-sft --environments 'BabyAIText-v0?task=goto' --iterations 20",),
    "export": (
        "gym-text export --data runs/data/rows --file tuning.jsonl",
        "gym-text export --format trl --episodes runs/played-0 runs/played-1 --file episodes.jsonl",
    ),
    "completion": ("gym-text completion bash",),
}
"""What stands below the options of each command; every line works as it is printed, once what it names is there."""

COMMANDS = {
    "envs": Command("list the environments", "gym_text_policies.commands.envs", "EnvsConfig"),
    "play": Command("play yourself, in the terminal", "gym_text_policies.commands.play", "PlayConfig"),
    "make-games": Command("make levels of TextWorld's games ahead", "gym_text_policies.commands.make_games", "MakeGamesConfig"),
    "bench": Command(
        "play policies in environments and print one table", "gym_text_policies.experiments.bench", "BenchConfig", "command"
    ),
    "report": Command("make one HTML page of run folders", "gym_text_policies.report", "ReportConfig"),
    "run": Command("run the experiment of a YAML file into one folder", "gym_text_policies.experiments.run", "RunConfig"),
    "collect": Command("play the train fold, and make training data of it", "gym_text_policies.data.collect", "CollectConfig"),
    "sft": Command("teach a language model what an expert or a good player did", "gym_text_policies.training.sft", "SFTConfig"),
    "dagger": Command(
        "let a tuned model play, and teach it what its expert says", "gym_text_policies.training.dagger", "DAggerConfig"
    ),
    "search": Command(
        "search for a policy's parameters",
        "gym_text_policies.search",
        "SearchConfig",
        "command",
        file="A YAML file with these settings as keys; options beside it replace the file's.",
    ),
    "aggrevate": Command(
        "teach a language model what each action costs, by its expert's plans",
        "gym_text_policies.training.aggrevate",
        "AggreVaTeConfig",
    ),
    "average": Command("take the mean of adapters", "gym_text_policies.training.model.average", "AverageConfig"),
    "merge": Command("make one model of an adapter and its base", "gym_text_policies.training.model.merge", "MergeConfig"),
    "grpo": Command(
        "let a language model learn from its own episodes beside others of the same level, by GRPO",
        "gym_text_policies.training.grpo",
        "GRPOConfig",
    ),
    "ppo": Command("let a language model learn from its own episodes, by PPO", "gym_text_policies.training.ppo", "PPOConfig"),
    "export": Command(
        "write training data for OpenAI (and submit it), TRL, verl, SkyRL", "gym_text_policies.data.export", "ExportConfig"
    ),
    "serve": Command(
        "serve an environment to other programs, by OpenEnv's protocol", "gym_text_policies.commands.serve", "ServeConfig"
    ),
    "completion": Command("print what makes a shell complete commands", "gym_text_policies.cli", "CompletionConfig", "complete"),
}


@dataclass(frozen=True)
class CompletionConfig:
    """Print a script with which your shell completes gym-text; `gym-text completion bash --help` says where to put it.

    bash: `eval "$(gym-text completion bash)"` in ~/.bashrc. zsh: `gym-text completion zsh > DIRECTORY_OF_FPATH/_gym-text`.
    """

    shell: Literal["bash", "zsh", "tcsh"]
    """Your shell."""


def complete(config: CompletionConfig) -> str:
    """Return the script."""
    shtab = import_extra("shtab", "experiments")
    return str(shtab.complete(make_parser(COMMANDS), config.shell))


class _HelpFormatter(argparse.HelpFormatter):
    """Fills paragraphs, but leaves what follows the options as it is."""

    RAW = "Examples:\n"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith(self.RAW):
            return text
        return "\n\n".join(super(_HelpFormatter, self)._fill_text(part, width, indent) for part in text.split("\n\n"))


class _Parser(argparse.ArgumentParser):
    """A parser that names the command or option that was probably meant."""

    options: tuple[str, ...] = ()
    """Options of the command that is used."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and action.dest != "command":
            check_choice(action.dest, value, list(action.choices))
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        if message.startswith("argument COMMAND: invalid choice: "):
            message = str(unknown_choice("command", message.split("'")[1], COMMANDS))
        if message.startswith("unrecognized arguments: -"):
            given = message.split()[2].partition("=")[0]
            near = difflib.get_close_matches(given, self.options, n=1)
            message = f"expected options that the command has; got {given}." + (f" Did you mean {near[0]}?" if near else "")
        super().error(message)


def make_parser(loaded: Sequence[str] | dict[str, Command] = ()) -> argparse.ArgumentParser:
    """Return the parser. Only the commands in `loaded` are imported and get their options."""
    parser = _Parser(
        prog="gym-text",
        description="Language models, and anything else that acts, in text games and control tasks.",
        epilog="gym-text COMMAND --help explains a command's options.",
    )
    parser.add_argument("--version", action="version", version=f"gym-text {version('gym-text')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        if name not in loaded:
            commands.add_parser(name, help=command.help)
            continue
        config, _ = command.load()
        text = str(config.__doc__).replace("%", "%%")
        more = "\n\n" + config.more_help() if hasattr(config, "more_help") else ""
        examples = "\n".join(f"  {line}" for line in EXAMPLES[name])
        epilog = f"{_HelpFormatter.RAW}{examples}{more}".replace("%", "%%")
        own = commands.add_parser(name, help=command.help, description=text, epilog=epilog, formatter_class=_HelpFormatter)
        if command.file:
            own.add_argument(_FILE, nargs="?", default=argparse.SUPPRESS, metavar="CONFIG", help=command.file)
        add_fields(own, config)
        if name not in _WITHOUT_MODEL:
            text = "Threads of a model in this process. Default: as many as OMP_NUM_THREADS says, else as there are cores."
            own.add_argument("--threads", type=int, default=argparse.SUPPRESS, metavar="N", dest=_THREADS, help=text)
        parser.options += tuple(name for name, action in own._option_string_actions.items() if action.help != argparse.SUPPRESS)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        The exit status: 0, 1 for a run that could not go on or had nothing but errors, 2 for a mistake of the user, 130 after
        Ctrl-C.
    """
    prepare_streams()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ShownFormatter("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    for package in ("gym_text", "gym_text_policies"):  # others, such as httpx, tell at INFO of each request
        logging.getLogger(package).setLevel(logging.INFO)
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not {"", os.getcwd()} & set(sys.path):  # modules of the user; last, so that they hide nothing that is installed
        sys.path.append(os.getcwd())
    config: Any = None
    try:
        settle_threads()  # before anything imports torch
        for word in arguments:
            check_characters("word", word)
        chosen = next((word for word in arguments if not word.startswith("-")), "")
        given = vars(make_parser([chosen]).parse_args(arguments))  # what was given, and no defaults
        kind, function = COMMANDS[given.pop("command")].load()
        if threads := given.pop(_THREADS, 0):
            settle_threads(threads)
        file = given.pop(_FILE, None)
        given = by_fields(kind, given)
        config = read_settings(kind, file, given) if file is not None else kind(**with_sections(kind, given))
        result = function(config)
        if result is not None and is_first():
            print(shown(result), flush=True)
    except KeyboardInterrupt as stop:
        print(f"\nStopped. {str(stop) or _kept(config)}".rstrip(), file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as head, has read enough
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  the interpreter flushes it at exit
        return 0
    except (GymTextError, OSError) as error:
        print(f"gym-text: {shown(str(error))}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    return 0


def _kept(config: Any) -> str:
    """Return what a command that does not say it itself keeps when it is stopped."""
    folder = getattr(config, "folder", None)
    if not isinstance(folder, str | os.PathLike):
        return ""
    if not os.path.isdir(folder) or set(os.listdir(folder)) <= {"config.json", ".lock"}:
        return f"Nothing is kept in {folder}: nothing had ended yet."
    return f"What had ended is kept in {folder}, what was under way is not; the same command goes on from there."


def console() -> None:
    """Run `main` and exit at once: a thread that waits for a model must not delay the exit."""
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    if status == 130:
        os._exit(status)
    sys.exit(status)


if __name__ == "__main__":
    console()
