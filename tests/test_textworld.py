"""TextWorld's games, tested in an environment of their own, as part of it is compiled: ``tests/bridges/textworld_tests.py``."""

from bridges.own_python import run_tests


def test_textworld_s_games_and_their_page():
    run_tests("textworld")
