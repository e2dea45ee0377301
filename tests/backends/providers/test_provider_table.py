"""One row of the table makes a provider known to commands, files, help and errors."""

import sys
from pathlib import Path

import pytest

from gym_text_policies import cli
from gym_text_policies.backends.provider_table import PROVIDERS, Provider
from gym_text_policies.backends.providers.keys import without_foreign_keys
from gym_text_policies.settings.yaml_nodes import parse_yaml

MODULE = """
from gym_text_policies.backends import Answer, Backend

class AcmeBackend(Backend):
    def __init__(self, model, *, loud=False, base_url=None, key_variable=None):
        self.model, self.loud = model, loud

    @property
    def config(self):
        return {"backend": "acme", "model": self.model, "loud": self.loud}

    def answer(self, requests):
        return [Answer("turn left") for request in requests]
"""
ROW = Provider("acme_backend:AcmeBackend", models="GADGET", key_variable="ACME_API_KEY", key_host="acme.example.org")
BENCH = ("--environments", "BabyAIText-v0?max_episode_steps=2", "--baselines", "none", "--modes", "text", "--folder", "run")


@pytest.fixture
def acme(tmp_path, monkeypatch):
    """A provider in a module of the current folder, with a row in the table: nothing else knows of it."""
    (tmp_path / "acme_backend.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(PROVIDERS, "acme", ROW)
    yield tmp_path
    sys.modules.pop("acme_backend", None)


def test_a_row_and_a_class_are_a_provider_in_bench_and_in_a_file(acme, capsys):
    assert cli.main(["bench", "--models", "acme:anvil", "--options", "loud=true", *BENCH]) == 0, capsys.readouterr().err
    assert "acme:anvil, text" in capsys.readouterr().out
    environment = (
        "environment: {name: 'BabyAIText-v0?max_episode_steps=2'}\nexperiment: {parent: runs, name: NAME, verbose: false}\n"
    )
    agents = {"one": "{backend: acme, model: anvil, options: {loud: true}}", "two": "{model: 'acme:anvil'}"}
    for name, agent in agents.items():
        Path("run.yaml").write_text(f"agent: {agent}\n" + environment.replace("NAME", name))
        assert cli.main(["run", "run.yaml"]) == 0, capsys.readouterr().err
        assert "acme:anvil" in Path("runs", name, "experiment.yaml").read_text()


def test_its_key_goes_to_its_own_host_alone(acme):
    text = "{model: 'acme:anvil', options: {base_url: 'https://HOST/v1'}}"
    for host, variable in (("acme.example.org", "its own"), ("elsewhere.example.org", None)):
        checked = without_foreign_keys(parse_yaml(text.replace("HOST", host), "file.yaml").value)
        assert checked["options"].plain().get("key_variable", "its own") == variable
