"""``gym-text completion``: a script with which a shell completes commands and options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gym_text.errors import import_extra
from gym_text_policies.commands.parser import COMMANDS, make_parser


@dataclass(frozen=True)
class CompletionConfig:
    """Print a script with which your shell completes the commands and options of gym-text.

    bash: add `eval "$(gym-text completion bash)"` to ~/.bashrc. zsh: `gym-text completion zsh > DIRECTORY_OF_FPATH/_gym-text`.
    """

    shell: Literal["bash", "zsh", "tcsh"]
    """Your shell."""


def run(config: CompletionConfig) -> str:
    """Return the script."""
    shtab = import_extra("shtab", "experiments")
    return str(shtab.complete(make_parser(COMMANDS), config.shell))
