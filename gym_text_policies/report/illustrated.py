"""`illustrated`: an episode with its pictures, for a notebook."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gym_text.html import block, line
from gym_text_policies.records import Episode
from gym_text_policies.remake import import_modules
from gym_text_policies.report.pictures import Pictures, draw_pictures
from gym_text_policies.terminal.notebooks import episode_html


@dataclass(frozen=True)
class Illustrated:
    """An episode with its pictures. A notebook shows it."""

    episode: Episode = field(repr=False)
    """The episode."""
    drawn: Pictures = field(repr=False)
    """Its pictures, and the expert's actions that its record lacks."""

    def _repr_html_(self) -> str:
        """Return the episode for a notebook; if there are no pictures, it says why."""
        numbers = {number: index for number, index in enumerate(self.drawn.shown) if index is not None}
        pictures = {
            number: self.drawn.pictures[index] for number, index in numbers.items() if 0 <= index < len(self.drawn.pictures)
        }
        gold = {number: action for number, action in enumerate(self.drawn.gold_actions) if action is not None}
        why = [line(f"No pictures: {self.drawn.missing}", faint=True)] * bool(self.drawn.missing)
        return str(block(episode_html(self.episode, pictures, gold), *why))


def illustrated(episode: Episode, *, imports: Iterable[str] = ()) -> Illustrated:
    """Play an episode again for its pictures.

    Args:
        episode: The recorded episode. Its record chooses one of the environments that ship with this package or with Gymnasium.
        imports: Modules whose environments may be played as well.

    Raises:
        UsageError: If a module cannot be imported.
    """
    imports = tuple(imports)
    import_modules(imports)
    return Illustrated(episode, draw_pictures(episode, imports=imports))
