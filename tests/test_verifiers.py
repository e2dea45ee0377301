"""The bridge to verifiers, tested in an environment of its own with the real library and a real server."""

from bridges.own_python import run_tests


def test_the_bridge_and_its_page_work_with_verifiers():
    run_tests("verifiers")
