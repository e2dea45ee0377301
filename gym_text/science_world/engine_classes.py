"""The classes of ScienceWorld's engine, of which a few are changed when they are loaded.

In the engine as it ships, an episode depends on more than its task and variation, for two reasons. The engine iterates over sets of
objects in the order of their addresses in memory. And one random generator serves all games: it moves animals, and it also draws by
which of its names a thing is listed. Therefore an object's hash code is its number here, and a second generator draws names and the
expert's random steps.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gym_text.errors import import_extra

OBJECT = "scienceworld/struct/EnvObject"
_RANDOM, _CHOICE = "scala/util/Random$", "scala/util/Choice$"
_CHOOSING = (
    *("scienceworld/input/InputParser$", "scienceworld/goldagent/PathFinder$"),
    *(f"scienceworld/tasks/specifictasks/Task{name}" for name in ("MendelianGenetics1", "MendelianGenetics2", "GrowPlant")),
)
"""Classes that draw names, or the expert's random steps."""


def write_changed_classes(jar: Path, folder: Path) -> None:
    """Write the changed classes into a folder; the class loader reads it before the engine's jar. Java must have been started."""
    with zipfile.ZipFile(jar) as classes:
        files = {name: classes.read(f"{name}.class") for name in (OBJECT, _RANDOM, *_CHOOSING)}
    # the two names have the same length, so that the bytes around them stay right
    changed = {name: files[name].replace(_RANDOM.encode(), _CHOICE.encode()) for name in _CHOOSING}
    changed[_CHOICE] = files[_RANDOM].replace(_RANDOM.encode(), _CHOICE.encode())
    changed[OBJECT] = _with_hash_code(files[OBJECT])
    for name, data in changed.items():
        path = folder / f"{name}.class"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _with_hash_code(data: bytes) -> bytes:
    """Return the class file of the engine's objects with a method ``hashCode`` that returns an object's number, a long."""
    java: Any = import_extra("jpype", "scienceworld").JClass
    types, signatures = java("java.lang.constant.ClassDesc"), java("java.lang.constant.MethodTypeDesc")
    owner, signature = types.ofDescriptor(f"L{OBJECT};"), signatures.ofDescriptor("()I")

    def body(code: Any) -> None:
        code.aload(0).getfield(owner, "uuid", types.ofDescriptor("J")).l2i().ireturn()

    def add(builder: Any) -> None:
        builder.withMethodBody("hashCode", signature, 1, body)  # 1: public

    classes = java("java.lang.classfile.ClassFile").of()
    consumer = java("java.util.function.Consumer")
    return bytes(classes.transformClass(classes.parse(data), java("java.lang.classfile.ClassTransform").endHandler(consumer @ add)))


class EngineClasses:
    """Loads the engine's classes by a class loader of its own; Java must have been started.

    Args:
        jar: The engine's jar.
        jpype: The module `jpype`.
    """

    def __init__(self, jar: Path, jpype: Any) -> None:
        self.jpype = jpype
        with TemporaryDirectory() as folder:
            write_changed_classes(jar, Path(folder))
            self._loader = self._new_loader(Path(folder), jar)
            for name in (OBJECT, _CHOICE, *_CHOOSING):
                self._load(name, initialise=False)
        self._load_without_output()

    def _new_loader(self, *sources: Path) -> Any:
        """Return a class loader that searches folders and jars in the given order."""
        java = self.jpype.JClass
        urls = [java("java.io.File")(str(source)).toURI().toURL() for source in sources]
        return java("java.net.URLClassLoader")(urls, java("java.lang.ClassLoader").getPlatformClassLoader())

    def _load(self, name: str, *, initialise: bool = True) -> Any:
        return self.jpype.JClass("java.lang.Class").forName(name.replace("/", "."), initialise, self._loader)

    def _load_without_output(self) -> None:
        """Load Scala's console while Java discards its output: the console keeps that stream, and the engine prints to it."""
        java = self.jpype.JClass
        system = java("java.lang.System")
        output = system.out
        system.setOut(java("java.io.PrintStream")(java("java.io.OutputStream").nullOutputStream()))
        try:
            self._load("scala/Console$")
        finally:
            system.setOut(output)

    def _setter(self, name: str, field: str) -> Any:
        """Return a function of object and value that sets a private field of a class."""
        declared = self._load(name).getDeclaredField(field)
        declared.setAccessible(True)
        return declared.set

    def of(self, name: str) -> Any:
        """Return a class of the engine, named as ``package/Name``."""
        return self.jpype.JClass(name.replace("/", "."), loader=self._loader)

    def module(self, name: str) -> Any:
        """Return Scala's singleton object of a name."""
        return getattr(self.of(f"{name}$"), "MODULE$")
