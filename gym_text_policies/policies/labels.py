"""Parts of a policy's name in tables, from its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def mixture(settings: Mapping[str, Any]) -> str:
    """Return the part of a policy's name that says how many actions are the expert's or random; empty if none are."""
    shown = (("expert_share", "expert's share"), ("noise", "noise"))
    shares = [(text, settings.get(name)) for name, text in shown]
    return "".join(f", {text} {share:g}" for text, share in shares if isinstance(share, int | float) and share)


def looking_ahead(settings: Mapping[str, Any]) -> str:
    """Return the part of a policy's name that says that it looks ahead; empty if it does not.

    >>> looking_ahead({"lookahead": "puct", "simulations": 32}), looking_ahead({})
    (', looks ahead: 32 simulations', '')
    """
    method = settings.get("lookahead")
    if method is None:
        return ""
    how = "" if method == "puct" else f" by {method}"
    copies = f" in {worlds} copies that agree with what was seen" if (worlds := settings.get("worlds")) else ""
    return f", looks ahead{how}: {settings.get('simulations')} simulations{copies}"


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
