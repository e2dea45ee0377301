"""YAML files: plain values alone, each with its line."""

import pytest

from gym_text import UsageError
from gym_text_policies import parse_config
from gym_text_policies.experiments.yaml_files import from_plain, read_yaml, variants

FILE = """\
agent:
  backend: scripted
  model: go forward
  temperature: .5
  history: all
environment:
  name: BabyAIText-v0
  kwargs: {task: goto, expert: off}
experiment:
  name: tried
  num_runs: 3
  verbose: no
"""


@pytest.fixture
def write(tmp_path):
    def write_file(text):
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return path

    return write_file


def test_a_list_within_a_list_is_a_value_and_a_batch_has_a_limit():
    assert [node.plain() for node, _ in variants(from_plain({"a": [[1, 2], [3]]}))] == [{"a": [1, 2]}, {"a": [3]}]
    with pytest.raises(UsageError, match="1000 configurations"):
        variants(from_plain({name: list(range(20)) for name in "abc"}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &a [1]\n? *a\n: 2", "expected a word as key; got a sequence"),
        ("a: !!binary aGk=", "expected YAML without types of its own"),
        ("a: !!timestamp 2020-01-01", "expected YAML without types of its own"),
    ],
)
def test_what_is_no_plain_value_is_refused(write, text, message):
    with pytest.raises(UsageError, match=message):
        read_yaml(write(text))


def test_dates_are_words_and_endless_numbers_are_refused(write):
    assert read_yaml(write("a: 2020-01-01")).plain() == {"a": "2020-01-01"}
    with pytest.raises(UsageError, match=r"agent\.temperature: expected a number"):
        parse_config(write(FILE.replace(".5", "1" * 400)))


@pytest.mark.parametrize("repeated", ["[{}]", "{{<<: [{}]}}"])
def test_aliases_of_aliases_end_in_an_error_and_not_in_a_full_memory(write, repeated):
    lines = ["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {repeated.format(', '.join([f'*a{n - 1}'] * 10))}" for n in range(1, 12))]
    with pytest.raises(UsageError, match="at most 100000 values"):
        read_yaml(write("\n".join(lines)))
    with pytest.raises(UsageError, match="expected YAML"):
        read_yaml(write("a: &a [*a]"))
