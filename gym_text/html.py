"""Parts of the HTML with which specs, records and tables show themselves in a notebook.

Texts of games and models are data from elsewhere. So every function here escapes its texts, except those that are `Markup` already.
The parts need no script and no style sheet, and fit light and dark pages.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence

from markupsafe import Markup

_KINDS = {b"\x89PNG\r\n\x1a\n": "png", b"RIFF": "webp"}
"""First bytes of a picture -> its kind."""
_SMALL = "font-size:0.85em;line-height:1.4"
_CELL = "text-align:left;vertical-align:top;padding:0.3em 0.8em 0.3em 0;border-top:1px solid rgba(128,128,128,.35)"
_SHORT = 22
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that control a terminal or turn the direction of writing."""


def shown(value: object, most: int = 400) -> Markup:
    """Return a text escaped, with its line breaks, and cut to `most` characters."""
    if isinstance(value, Markup):
        return value
    text = _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", str(value)).encode("utf-8", "replace").decode("utf-8").strip()
    text = text if len(text) <= most else f"{text[: most - 1]}…"
    return Markup("<br>").join(text.splitlines())


def joined(parts: Iterable[object]) -> Markup:
    """Return parts one after the other; each that is no `Markup` is escaped."""
    return Markup("").join(shown(part) for part in parts)


def line(content: object, *, faint: bool = False) -> Markup:
    """Return a line of text."""
    return Markup('<div style="{}">{}</div>').format("opacity:.7" if faint else "", shown(content))


def block(*parts: object) -> Markup:
    """Return parts below each other, as all that an object shows. MathJax, which notebooks run, leaves them as they are."""
    return Markup('<div class="tex2jax_ignore mathjax_ignore" style="{}">{}</div>').format(_SMALL, joined(parts))


def table(headings: Sequence[object], rows: Iterable[Sequence[object]], *, height: str = "") -> Markup:
    """Return a table.

    Args:
        headings: The headings of its columns.
        rows: The cells of its rows.
        height: Greatest height, in units of CSS; what is higher scrolls. Empty: as high as its rows.
    """
    head = joined(Markup('<th style="{};font-weight:bold">{}</th>').format(_CELL, shown(cell)) for cell in headings)
    lines = (joined(Markup('<td style="{}">{}</td>').format(_CELL + _whole(cell), shown(cell)) for cell in row) for row in rows)
    body = joined(Markup("<tr>{}</tr>").format(row) for row in lines)
    style = "margin:0.4em 0;overflow:auto" + (f";max-height:{height}" if height else "")
    return Markup(
        '<div style="{}"><table class="gym-text" style="border-collapse:collapse;{}"><thead><tr>{}</tr></thead><tbody>{}</tbody>'
        "</table></div>"
    ).format(style, _SMALL, head, body)


def _whole(cell: object) -> str:
    """Return the style of a short cell, such as a number with its interval: it is not broken."""
    whole = not isinstance(cell, Markup) and len(str(cell)) <= _SHORT
    return f";white-space:{'nowrap' if whole else 'normal'}"


def bar(name: str, share: float, *, taken: bool = False, expert: bool = False) -> Markup:
    """Return a share between 0 and 1 as a bar with a name in it.

    Args:
        name: The name.
        share: Length of the bar; 1 is the whole width.
        taken: Whether the bar has a frame, as that of the action that was taken.
        expert: Whether the word "expert" stands at its end.
    """
    length = f"{100 * min(max(share, 0.0), 1.0):.1f}%"
    colours = Markup("linear-gradient(to right,rgba(66,133,180,.4) {0},transparent {0})").format(length)
    said = Markup('<span style="padding:0 .4em">{} {}</span>').format(f"{share:.0%}", shown(name, 60))
    said += Markup('<span style="float:right;padding:0 .4em;color:#c06a00">expert</span>') if expert else ""
    frame = "currentColor" if taken else "transparent"
    return Markup('<div style="width:18em;border:1px solid {};margin-bottom:1px;background:{}">{}</div>').format(
        frame, colours, said
    )


def picture(data: str, width: int = 160) -> Markup:
    """Return a picture, or nothing if the text is none.

    Args:
        data: A PNG or WebP in base64.
        width: Pixels of its width on the page.
    """
    try:
        raw = base64.b64decode(data, validate=True)
    except ValueError:
        raw = b""
    kind = next((kind for begin, kind in _KINDS.items() if raw.startswith(begin)), None)
    tag = Markup('<img alt="" style="width:{}px;max-width:none" src="data:image/{};base64,{}">')
    return tag.format(width, kind, data) if kind else Markup("")
