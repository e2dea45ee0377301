"""Parts of a policy's name in tables, from its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def additions(settings: Mapping[str, Any]) -> str:
    """Return the part of a policy's name that says that it looks ahead, and how many actions are the expert's or random.

    >>> additions({"lookahead": "puct", "simulations": 32, "noise": 0.1}), additions({})
    (', looks ahead: 32 simulations, noise 0.1', '')
    """
    parts = ""
    if method := settings.get("lookahead"):
        how = "" if method == "puct" else f" by {method}"
        parts = f", looks ahead{how}: {settings.get('simulations')} simulations"
    shares = [(text, settings.get(name)) for name, text in (("expert_share", "expert's share"), ("noise", "noise"))]
    return parts + "".join(f", {text} {share:g}" for text, share in shares if isinstance(share, int | float) and share)


def thinking(settings: Mapping[str, Any]) -> str:
    """Return in words whether a model is to think before it answers, and how long; empty if that is not given.

    >>> thinking({"think": "low", "think_tokens": 64}), thinking({"think": False}), thinking({})
    ('thinks low up to 64 tokens', 'no thought', '')
    """
    think, budget = settings.get("think"), settings.get("think_tokens")
    if think is False:
        return "no thought"
    if think is None and budget is None:
        return ""
    effort = f" {think}" if isinstance(think, str) else ""
    return f"thinks{effort}" + ("" if budget is None else f" up to {budget} tokens")
