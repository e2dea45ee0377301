"""Language models behind one method, `Backend.answer`."""

from gym_text_policies.backends.base import Answer, Backend, Request
from gym_text_policies.backends.own_models import backend
from gym_text_policies.backends.scripted import ScriptedBackend

__all__ = ["Answer", "Backend", "Request", "ScriptedBackend", "backend"]
