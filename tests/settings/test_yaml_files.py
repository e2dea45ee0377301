"""YAML files: plain values alone, each with its line."""

import pytest

from gym_text import UsageError
from gym_text_policies.settings.yaml_nodes import from_plain, read_yaml, variants


@pytest.fixture
def read(tmp_path):
    """Return a function that reads a text as a YAML file."""

    def read_text(text):
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return read_yaml(path)

    return read_text


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
def test_what_is_no_plain_value_is_refused(read, text, message):
    with pytest.raises(UsageError, match=message):
        read(text)


@pytest.mark.parametrize("text", [r'a: "b\0"', r'a: ["\ud800"]', r'"a\0": b', r'a: {b: "\udfff\ud800"}'])
def test_characters_that_no_file_can_hold_are_refused_with_their_line(read, text):
    with pytest.raises(UsageError, match=r"config\.yaml, line 1: expected a text in Unicode, without the character NUL"):
        read(text)


def test_dates_and_words_for_truth_stay_words(read):
    assert read("{a: 2020-01-01, b: off, c: true}").plain() == {"a": "2020-01-01", "b": "off", "c": True}


@pytest.mark.parametrize("repeated", ["[{}]", "{{<<: [{}]}}"])
def test_aliases_of_aliases_end_in_an_error_and_not_in_a_full_memory(read, repeated):
    lines = ["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {repeated.format(', '.join([f'*a{n - 1}'] * 10))}" for n in range(1, 12))]
    with pytest.raises(UsageError, match="at most 100000 values"):
        read("\n".join(lines))
    with pytest.raises(UsageError, match="expected YAML"):
        read("a: &a [*a]")
