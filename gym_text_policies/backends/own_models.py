"""A language model of the user's own, ``module:Name``: a `Backend`, or a function that the decorator `backend` turns into one."""

from __future__ import annotations

import inspect
import operator
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gym_text.errors import PolicyError, UsageError, check_options, unknown_choice
from gym_text_policies.backends.base import Answer, Backend, Request
from gym_text_policies.backends.provider_table import prefixes
from gym_text_policies.backends.providers.answer_checks import check_answer
from gym_text_policies.environments import import_module
from gym_text_policies.files.digests import file_digest

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
"""Two Python names, dotted or not, with a colon between them."""


def is_own(model: str) -> bool:
    """Return whether a model's name can be a module and a name in it, such as ``my_policies:Four``."""
    return bool(_NAME.fullmatch(model)) and model.partition(":")[0] not in prefixes()


def object_of(name: str) -> Any:
    """Import the module of ``module:Name``, and return the object of that name in the module.

    Raises:
        UsageError: If the module cannot be imported, or has no such name.
    """
    module, _, path = name.partition(":")
    found = import_module(
        module, f"model {name!r}: expected a language model's name, or module:Name of a policy or a Backend of your own"
    )
    try:
        return operator.attrgetter(path)(found)
    except AttributeError:
        made = [name for name, value in vars(found).items() if callable(value) and getattr(value, "__module__", "") == module]
        raise unknown_choice(f"policy {name!r}", path, made) from None


def instance_of(kind: type[Any], name: str, expected: str, *arguments: Any, **options: Any) -> Any:
    """Return an instance of a user's class, ``module:Name``.

    Raises:
        UsageError: If the class does not take the arguments, which the error calls `expected`, or leaves a method abstract.
    """
    try:
        return kind(*arguments, **options)
    except TypeError as error:
        raise UsageError(f"{name!r}: expected {expected}; {error}.") from error


def options_of(name: str) -> set[str]:
    """Return the options of a policy's class ``module:Name``, its keyword-only arguments but the seed; of anything else none."""
    kind = object_of(name)
    parameters = inspect.signature(kind).parameters.values() if isinstance(kind, type) else ()
    return {one.name for one in parameters if one.kind is one.KEYWORD_ONLY and one.name != "seed"}


def source_of(name: str) -> str:
    """Return the digest of an imported module's file, which changes when the file is edited; empty for a module without a file."""
    file = getattr(sys.modules[name.partition(":")[0]], "__file__", None)
    return file_digest(file) if file else ""


def is_own_backend(name: str) -> bool:
    """Import the module, and return whether ``module:Name`` is a `Backend`; False if there is no such module or name."""
    try:
        value = object_of(name)
    except UsageError:  # loading the model raises the same error, with a message
        return False
    return isinstance(value, Backend) or (isinstance(value, type) and issubclass(value, Backend))


def backend(function: Callable[..., Sequence[Answer]]) -> type[Backend]:
    """Make a `Backend` of a function from requests to their answers, as a decorator.

    >>> @backend
    ... def shouting(requests, *, word="go"):
    ...     return [Answer(text=word.upper()) for request in requests]
    >>> shouting(word="left").answer([Request(({"role": "user", "content": "Where?"},))])[0].text
    'LEFT'

    Args:
        function: It takes a list of `Request`, and returns an `Answer` for each. Its other parameters are the backend's options.
            An answer must not depend on the other requests.
    """
    signature = inspect.signature(function)
    parameters = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in list(signature.parameters.values())[1:]]

    class FunctionBackend(Backend):
        __doc__ = function.__doc__
        __signature__ = signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)

        def __init__(self, **options: Any) -> None:
            self._options = options

        def answer(self, requests: Sequence[Request]) -> list[Answer]:
            return list(function(requests, **self._options))

        @property
        def config(self) -> dict[str, Any]:
            return {"backend": "function", "model": function.__qualname__, **self._options}

    FunctionBackend.__name__, FunctionBackend.__qualname__ = function.__name__, function.__qualname__
    FunctionBackend.__module__ = function.__module__
    return FunctionBackend


def load_own_backend(name: str, options: Mapping[str, Any], others: Collection[str] = ()) -> Backend:
    """Return a language model of the user's own.

    Args:
        name: ``module:Name``. The module can be imported: it is installed, or lies in the folder from which a command is called.
            Name is a subclass of `Backend`, which is called with the options, a function that `backend` decorates, or a `Backend`.
            Records identify it by this name, its module's file, and its ``config``.
        options: Of the class or the function; a `Backend` takes none.
        others: Names of options that the caller takes itself; an error for an unknown option lists them too.

    Raises:
        UsageError: If there is no such module or name, it is no `Backend`, or does not take the options.
    """
    value = object_of(name)
    if isinstance(value, Backend):
        check_options(name, options, list(others))
        return OwnBackend(value, name)
    if not (isinstance(value, type) and issubclass(value, Backend)):
        raise UsageError(f"model {name!r}: expected a Backend, or a function that @backend decorates; got {value!r}.")
    signature = inspect.signature(value)
    check_options(name, options, [*others, *signature.parameters])
    return OwnBackend(instance_of(value, name, f"the options of {value.__name__}{signature}", **options), name)


class OwnBackend(Backend):
    """Checks the answers of another backend, and adds its name and its module's digest to what identifies it in records.

    Args:
        model: The other backend.
        name: Its name, ``module:Name``.
    """

    def __init__(self, model: Backend, name: str) -> None:
        self.remote, self.takes_pictures = model.remote, model.takes_pictures
        self._model, self._name, self._source = model, name, source_of(name)

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """Let the other backend answer.

        Raises:
            PolicyError: If the other backend fails, or does not return a valid answer for each request.
        """
        answers = self._model.answer(requests)
        if not isinstance(answers, list | tuple) or len(answers) != len(requests):
            got = f"{len(answers)} answers" if isinstance(answers, list | tuple) else f"{answers!r:.200}"
            raise PolicyError(f"{self._name}: expected a list with an Answer for each of {len(requests)} requests; got {got}.")
        try:
            return [_checked(answer, request) for answer, request in zip(answers, requests, strict=True)]
        except (TypeError, ValueError) as error:
            raise PolicyError(f"{self._name}: expected answers of the documented form; {error}.") from error

    def count(self, text: str) -> int:
        """Let the other backend count."""
        return self._model.count(text)

    def check(self, request: Request) -> None:
        """Let the other backend see whether it can answer."""
        self._model.check(request)

    @property
    def config(self) -> dict[str, Any]:
        """The other backend's name, the digest of its module's file, and its configuration."""
        return {"backend": "own", "model": self._name, "source": self._source, "own": self._model.config}


def _checked(answer: Answer, request: Request) -> Answer:
    """Check each field of an answer, and return the answer with its choices in the request's order."""
    if not isinstance(answer, Answer):
        raise TypeError(f"an Answer is expected; got {answer!r:.200}")
    choices, probabilities = request.choices, answer.probabilities
    if answer.choice is not None and request.probabilities:
        raise ValueError(f"a probability of each choice is expected; got the choice {answer.choice!r} alone")
    if choices is not None and isinstance(probabilities, Mapping) and probabilities.keys() == set(choices):
        answer = replace(answer, probabilities={choice: probabilities[choice] for choice in choices})
    return check_answer(answer, choices)
