"""Errors say what was expected, what came, and how to repair it."""

import pytest

from gym_text import MissingDependencyError, UsageError
from gym_text.errors import check_bool, check_choice, check_int, check_options, import_extra


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("tset", "fold: expected one of 'train', 'dev', 'test'; got 'tset'. Did you mean 'test'?"),
        (7, "fold: expected one of 'train', 'dev', 'test'; got 7."),
    ],
)
def test_a_value_that_is_not_among_the_choices_is_told_with_the_nearest(value, message):
    check_choice("fold", "dev", ("train", "dev", "test"))
    with pytest.raises(UsageError) as error:
        check_choice("fold", value, ("train", "dev", "test"))
    assert str(error.value) == message


def test_an_unknown_option_is_named_without_its_value_and_a_key_is_pointed_to_the_environment():
    check_options("options", {"timeout": 3}, ("timeout", "retries"))
    with pytest.raises(UsageError, match=r"unknown option 'timeuot'\. Did you mean 'timeout'\? Options: timeout, retries\."):
        check_options("options", {"timeuot": 3}, ("timeout", "retries"))
    with pytest.raises(UsageError, match="Keys are read from environment variables only") as error:
        check_options("options", {"api_key": "sk-planted"}, ("timeout",))
    assert "sk-planted" not in str(error.value)


@pytest.mark.parametrize("value", [-1, 11, 2.0, "3", True, None])
def test_only_integers_of_the_range_are_integers(value):
    assert (check_int("size", 0, 0, 10), check_int("size", 10, 0, 10)) == (0, 10)
    with pytest.raises(UsageError, match="size: expected an integer from 0 to 10; got"):
        check_int("size", value, 0, 10)


def test_only_true_and_false_are_bools():
    assert check_bool("bias", False) is False
    with pytest.raises(UsageError, match="bias: expected True or False; got 'no'"):
        check_bool("bias", "no")


def test_a_missing_package_is_told_with_the_line_that_installs_it_and_an_error_within_a_package_is_not_hidden(
    tmp_path, monkeypatch
):
    assert import_extra("json", "local").loads("[1]") == [1]
    with pytest.raises(MissingDependencyError, match=r"'no_such_package' is not installed\. Run: pip install 'gym-text\[local\]'"):
        import_extra("no_such_package.part", "local")
    (tmp_path / "package_that_needs_another.py").write_text("import another_that_is_missing")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="another_that_is_missing") as error:
        import_extra("package_that_needs_another", "local")
    assert not isinstance(error.value, MissingDependencyError)
