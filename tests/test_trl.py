"""TRL, in an environment of its own: see ``tests/bridges/trl_tests.py``."""

from bridges.own_python import run_tests


def test_trl_trains_on_our_environments():
    run_tests("trl")
