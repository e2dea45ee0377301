"""The bridge to NeMo Gym, tested in an environment of its own with the real library."""

from bridges.own_python import run_tests


def test_the_bridge_and_its_page_work_with_nemo_gym():
    run_tests("nemo_gym", page="nemo-gym")
