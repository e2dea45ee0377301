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


def test_a_list_within_a_list_is_a_value():
    assert [node.plain() for node, _ in variants(from_plain({"a": [[1, 2], [3]]}))] == [{"a": [1, 2]}, {"a": [3]}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "config.yaml, line 3: expected each key once; 'a' comes twice"),
        ("a: !!python/object:os.system x", "config.yaml, line 1: expected YAML; could not determine a constructor"),
        ("a: &a [*a]", "expected YAML"),
    ],
)
def test_what_is_no_plain_value_is_refused(read, text, message):
    with pytest.raises(UsageError, match=message):
        read(text)


def test_dates_and_words_for_truth_stay_words(read):
    assert read("{a: 2020-01-01, b: off, c: true}").plain() == {"a": "2020-01-01", "b": "off", "c": True}
