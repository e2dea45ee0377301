"""Config dataclasses from YAML files: keys, sections, and the mistakes in them."""

from dataclasses import dataclass

import pytest

from gym_text import UsageError
from gym_text_policies.settings.from_file import read_settings


@dataclass(frozen=True)
class Learning:
    """How it learns."""

    epochs: int = 1
    """How often."""
    layers: tuple[int, ...] = ()
    """Which."""

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise UsageError(f"epochs: expected 1 or more; got {self.epochs}.")


@dataclass(frozen=True)
class Rounds:
    """Learn in rounds."""

    rounds: int = 2
    """How many."""
    sft: Learning = Learning()
    """How each round learns."""


def test_a_file_has_sections_and_options_beside_it_replace_its_keys(tmp_path):
    path = tmp_path / "rounds.yaml"
    path.write_text("sft:\n  layers: [1, 2]\n")
    assert read_settings(Rounds, path) == Rounds(2, Learning(layers=(1, 2)))
    assert read_settings(Rounds, path, {"rounds": 3}) == Rounds(3, Learning(layers=(1, 2)))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sft: 3", ["line 1: sft: expected keys (epochs, layers); got 3."]),
        ("sft: {epochs: 0}", ["line 1: sft.epochs: expected 1 or more; got 0."]),
        (
            "sft:\n  epoch: 2\n  epochs: 0.5\n",
            [
                "line 2: sft: got an unknown key 'epoch'. Did you mean 'epochs'? Keys: epochs, layers.",
                "line 3: sft.epochs: expected an integer; got 0.5.",
            ],
        ),
    ],
)
def test_every_mistake_is_named_with_its_line(tmp_path, text, told):
    path = tmp_path / "rounds.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        read_settings(Rounds, path)
    assert str(error.value).splitlines() == [f"{path}, {line}" for line in told]
