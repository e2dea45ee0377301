"""The page on ART, whose code is tested in an environment of its own with the real library."""

from bridges.own_python import run_tests


def test_the_code_of_the_page_plays_and_trains_with_art():
    run_tests("art")
