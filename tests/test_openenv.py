"""The OpenEnv bridge, in an environment of its own; the tests are in ``tests/bridges/openenv_tests.py``."""

from bridges.own_python import run_tests


def test_the_bridge_works_with_the_real_library():
    run_tests("openenv")
