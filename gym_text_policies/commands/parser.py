"""The table of commands and its parser, whose options are the fields of config dataclasses.

A command's module is imported when the command is chosen, so that help is fast.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import importlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, NoReturn, get_args, get_origin

from gym_text_policies.settings.fields import Word, members_of, read_value, settings_of

FILE = "file of settings"
"""Name of the parsed argument with the YAML file, which is no field of a config."""


class Command(NamedTuple):
    """One command: a config dataclass, whose fields are the options, and the function that takes it."""

    help: str
    """What it does, in half a line."""
    module: str
    """Module of the dataclass and of the function, in this package."""
    config: str
    """Name of the dataclass; its docstring and the strings under its fields are the command's help."""
    function: str = "run"
    """Name of the function. The text that it returns is printed; None prints nothing."""
    takes_file: bool = False
    """Whether a YAML file of settings may stand before its options."""

    def load(self) -> tuple[type[Any], Callable[[Any], str | None]]:
        """Import and return the dataclass and the function."""
        module = importlib.import_module(f"gym_text_policies.{self.module}")
        return getattr(module, self.config), getattr(module, self.function)


EXAMPLES = {
    "envs": "gym-text envs cooking",
    "play": "gym-text play 'BabyAIText-v0?task=goto' --first-seed 3",
    "serve": "gym-text serve 'BabyAIText-v0?task=goto' --port 8001",
    "bench": "gym-text bench --models smollm2 my_policies:Mine --environments 'BabyAIText-v0?task=goto' --llm-episodes 10",
    "panel": "gym-text panel --models smollm2 --size small",
    "report": "gym-text report runs/policies",
    "compare": "gym-text compare random 'prompted: smollm2, choose' --folder runs/policies",
    "run": "gym-text run experiment.yaml --set agent.model=smollm2 experiment.episodes=3",
    "collect": "gym-text collect --environments 'BabyAIText-v0?task=goto' --episodes 100",
    "sft": "gym-text sft --data runs/data/rows --dev-environments 'BabyAIText-v0?task=goto' --epochs 2",
    "dagger": "gym-text dagger --model runs/sft/adapter --data runs/data/rows --iterations 2",
    "expert-iteration": "gym-text expert-iteration --model runs/weak/adapter --environments 'BabyAIText-v0?task=goto'",
    "search": "gym-text search --environment MountainCarContinuousLLM-v0 --optimiser cma",
    "merge": "gym-text merge adapters/babyai-sft runs/merged",
    "grpo": "gym-text grpo --model runs/weak/adapter --environments 'BabyAIText-v0?task=goto' --iterations 20",
    "ppo": "gym-text ppo --model adapters/babyai-sft --environments 'BabyAIText-v0?task=goto' --iterations 20",
    "export": "gym-text export --data runs/data/rows --file openai.jsonl",
}
"""What stands below the options of each command. It works as it is printed, once what it names is there."""

COMMANDS = {
    "envs": Command("list the environments", "commands.envs", "EnvsConfig"),
    "play": Command("play yourself, in the terminal", "commands.play", "PlayConfig"),
    "bench": Command("play policies in environments and print one table", "run.bench", "BenchConfig", "command"),
    "panel": Command("play a fixed list of worlds, with scores between chance and the expert", "run.panel.command", "PanelConfig"),
    "report": Command("make one HTML page of run folders", "report", "ReportConfig"),
    "compare": Command("compare policies on the same levels, by paired tests", "report.compare", "CompareConfig"),
    "run": Command("run the experiment of a YAML file into one folder", "run.experiment_folder", "RunConfig"),
    "collect": Command("play the train fold and make training data of the episodes", "data.collect", "CollectConfig"),
    "sft": Command("teach a language model what an expert or a good player did", "training.sft", "SFTConfig", "sft"),
    "dagger": Command(
        "let a fine-tuned model play, and teach it what its expert would do (DAgger)", "training.dagger", "DAggerConfig", "dagger"
    ),
    "expert-iteration": Command(
        "let a language model look ahead in copies of the game, and teach it what it finds",
        "training.expert_iteration",
        "ExpertIterationConfig",
    ),
    "search": Command("search for a policy's parameters", "search", "SearchConfig", "command", takes_file=True),
    "merge": Command("merge an adapter into its base", "training.model.merge", "MergeConfig", "merge"),
    "grpo": Command(
        "let a language model learn by GRPO: it compares its episodes of the same level", "training.grpo", "GRPOConfig"
    ),
    "ppo": Command("let a language model learn from its own episodes by PPO", "training.ppo", "PPOConfig"),
    "export": Command("write training data for TRL and other trainers", "data.export", "ExportConfig"),
    "serve": Command("serve an environment by OpenEnv's protocol, or a model as a decision model", "commands.serve", "ServeConfig"),
}


class _HelpFormatter(argparse.HelpFormatter):
    """Fills paragraphs, but leaves what follows the options as it is."""

    RAW = "Example:\n"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith(self.RAW):
            return text
        return "\n\n".join(super(_HelpFormatter, self)._fill_text(part, width, indent) for part in text.split("\n\n"))


class Parser(argparse.ArgumentParser):
    """A parser that names the command or option that was probably meant."""

    options: tuple[str, ...] = ()
    """Options of the command that is used."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and action.dest != "command":
            from gym_text.errors import check_choice

            check_choice(action.dest, value, list(action.choices))
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        """Print the message and exit."""
        if message.startswith("argument COMMAND: invalid choice: "):
            from gym_text.errors import unknown_choice

            message = str(unknown_choice("command", message.split("'")[1], COMMANDS))
        if message.startswith("unrecognized arguments: -"):
            option = message.split()[2].partition("=")[0]
            near = difflib.get_close_matches(option, self.options, n=1)
            message = f"expected options that the command has; got {option}." + (f" Did you mean {near[0]}?" if near else "")
        super().error(message)


class _Version(argparse.Action):
    """Prints the version. It is looked up only then, because that takes longer than all other help."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from importlib.metadata import version

        sys.stdout.write(f"gym-text {version('gym-text')}\n")
        parser.exit()


def make_parser(loaded: Sequence[str] | dict[str, Command] = ()) -> argparse.ArgumentParser:
    """Return the parser. Only the commands in `loaded` are imported and get their options."""
    parser = Parser(
        prog="gym-text",
        description="Play text games and control tasks with language models and other policies, and train the models.",
        epilog="gym-text COMMAND --help explains a command's options.",
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, default=argparse.SUPPRESS, help="show program's version number and exit"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        if name not in loaded:
            commands.add_parser(name, help=command.help)
            continue
        config, _ = command.load()
        text = str(config.__doc__).replace("%", "%%")
        more = "\n\n" + config.more_help() if hasattr(config, "more_help") else ""
        epilog = f"{_HelpFormatter.RAW}  {EXAMPLES[name]}{more}".replace("%", "%%")
        subparser = commands.add_parser(name, help=command.help, description=text, epilog=epilog, formatter_class=_HelpFormatter)
        if command.takes_file:
            text = "A YAML file with these settings as keys; options beside it replace the file's."
            subparser.add_argument(FILE, nargs="?", default=argparse.SUPPRESS, metavar="CONFIG", help=text)
        add_fields(subparser, config)
        parser.options += tuple(
            name for name, action in subparser._option_string_actions.items() if action.help != argparse.SUPPRESS
        )
    return parser


def add_fields(parser: argparse.ArgumentParser, config: type[Any]) -> None:
    """Make an option of each field of a config dataclass; the string under the field is its help.

    The parsed namespace has only the options that were given. So an option overrides a YAML file even if it has its default value.

    A field without a default, or with ``metadata={"positional": True}``, is a positional argument. A bool is ``--x`` and
    ``--no-x``, ``none`` stands for None, a tuple takes several words, and a mapping ``key=value`` words, whose values are JSON
    where they can be.
    """
    for setting in settings_of(config):
        text, default = setting.doc, setting.default
        explained = "default" in text.lower() and _shown(default) == "none"  # the text says what an empty default means
        if default is not dataclasses.MISSING and default is not None and not explained:
            text += f" Default: {_shown(default)}."
        arguments = _arguments(setting.name, setting.hint) | {"help": text.replace("%", "%%"), "default": argparse.SUPPRESS}
        if setting.is_positional:
            several = arguments.get("nargs") == "*"
            optional = default is not dataclasses.MISSING
            arguments["nargs"] = ("*" if optional else "+") if several else "?" if optional else None
            if "choices" not in arguments:
                arguments["metavar"] = setting.name.upper()
            parser.add_argument(setting.name, **arguments)
        else:
            parser.add_argument(f"--{setting.name.replace('_', '-')}", dest=setting.name, **arguments)


def _shown(default: Any) -> str:
    if isinstance(default, tuple):
        return " ".join(map(str, default)) or "none"
    return "none" if default in ("", {}) else str(default)


def _arguments(name: str, hint: Any) -> dict[str, Any]:
    """Return the keyword arguments of `add_argument` for a setting."""
    if hint in (bool, bool | None):
        return {"action": argparse.BooleanOptionalAction}
    if tuples := [member for member in members_of(hint) if get_origin(member) is tuple]:
        return _arguments(name.removesuffix("s"), get_args(tuples[0])[0]) | {"nargs": "*", "action": _AsTuple}
    if get_origin(hint) in (dict, Mapping):
        return {"nargs": "*", "action": _AsMapping, "metavar": "KEY=VALUE"}
    if get_origin(hint) is Literal and all(isinstance(choice, str) for choice in get_args(hint)):
        return {"choices": get_args(hint), "metavar": f"{{{','.join(filter(None, get_args(hint)))}}}"}
    return {"type": _reader(hint), "metavar": "|".join(_shape(name, m) for m in members_of(hint) if m is not type(None))}


def _shape(name: str, member: Any) -> str:
    """Return the placeholder that help shows for a value of a type."""
    if get_origin(member) is Literal:
        return "|".join(map(str, get_args(member)))
    return {int: "N", float: "X", bool: "true|false"}.get(member, name.upper())


def _reader(hint: Any) -> Callable[[str], Any]:
    """Return a function that converts a word to a type."""

    def read(word: str) -> Any:
        if word == argparse.SUPPRESS:  # argparse passes it for a positional argument that was not given
            return word
        try:
            return read_value(Word(word), hint)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"expected {error}; got {word!r}") from None

    return read


class _AsTuple(argparse.Action):
    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, (*getattr(namespace, self.dest, ()), *values))  # an option may come several times


class _AsMapping(argparse.Action):
    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None) -> None:
        pairs = {}
        for word in values:
            key, equals, value = word.partition("=")
            if not equals:
                raise argparse.ArgumentError(self, f"expected key=value; got {word!r}")
            try:
                pairs[key] = json.loads(value)
            except (ValueError, RecursionError):
                pairs[key] = value
        setattr(namespace, self.dest, {**getattr(namespace, self.dest, {}), **pairs})
