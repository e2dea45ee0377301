"""The reference page has every public name, each with a description."""

import dataclasses
import importlib
import inspect
import re
from pathlib import Path

import pytest

pytest.importorskip("griffe")


@pytest.fixture(scope="module")
def reference():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[2] / "docs"))
        yield importlib.import_module("reference")


@pytest.fixture(scope="module")
def page(reference):
    return reference.reference_page()


def test_every_public_name_is_described(reference, page):
    listed = [name for names in reference.public_names().values() for name in names]
    assert len(listed) == len(set(listed))
    for module in reference.PACKAGES:
        assert {name for name in importlib.import_module(module).__all__} <= set(listed), module
    for module, names in reference.imported_by_the_pages():
        assert set(names) <= set(listed), module
    for name in listed:
        section = re.search(rf"^### {re.escape(name)} {{ #{re.escape(name)} }}\n(.*?)(?=^##|\Z)", page, re.M | re.S)[1]
        text = re.sub(r"```.*?```|^Base:.*?$|^\*\*.*", "", section, flags=re.M | re.S)
        assert len(text.split()) >= 3, name


def test_every_method_and_every_field_is_described(reference, page):
    missing = []
    for module, names in reference.public_names().items():
        for name in names:
            thing = getattr(importlib.import_module(module), name.rpartition(".")[2])
            if inspect.isclass(thing):
                fields = [field.name for field in dataclasses.fields(thing)] if dataclasses.is_dataclass(thing) else []
                methods = [key for key, value in vars(thing).items() if inspect.isfunction(value) and not key.startswith("_")]
                named = thing._fields if issubclass(thing, tuple) else ()
                own = {*fields, *methods, *named} & reference.read(module, name).members.keys()
                missing += sorted(f"{name}.{key}" for key in own - reference.members(module, name).keys())
    assert missing == []
    assert "`environment: Mapping[str, Any]`{ #Episode.environment }\n:   The environment's id" in page
