"""Small networks of stable-baselines3 and sb3-contrib for environments in `EncodeText`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from gymnasium import spaces
from sb3_contrib.common.maskable.policies import MaskableMultiInputActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

VOCABULARY = 4096
"""Ids of words, the usual number of `EncodeText`."""


class WordEmbeddings(BaseFeaturesExtractor):
    """A learned vector for each word, in the order of the words. The vector has `size` numbers."""

    def __init__(self, space: gym.spaces.Dict, size: int = 16) -> None:
        boxes = [box for box in space.values() if isinstance(box, spaces.Box)]
        super().__init__(space, features_dim=size * sum(box.shape[0] for box in boxes))
        self.embedding = torch.nn.Embedding(1 + max(int(box.high.max()) for box in boxes), size, padding_idx=0)

    def forward(self, obs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Turn ids, each of shape (batch, words), into features of shape (batch, all words x size)."""
        return torch.cat([self.embedding(ids.long()).flatten(1) for ids in obs.values()], dim=1)


class Numbers(BaseFeaturesExtractor):
    """The numbers of an observation, without its texts."""

    def __init__(self, space: gym.spaces.Dict) -> None:
        self.keys = [key for key, box in space.items() if not _is_text(box)]
        super().__init__(space, features_dim=sum(spaces.flatdim(space[key]) for key in self.keys))

    def forward(self, obs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the numbers as features of shape (batch, numbers)."""
        return torch.cat([obs[key].float().flatten(1) for key in self.keys], dim=1)


class ScoredActions(BaseFeaturesExtractor):
    """The state, and a score of each valid action from the words of its name, as in the DRRN of He et al. (2016).

    A text is the mean of learned vectors of its words and of its pairs of neighbouring words. An action's score depends on its
    vector, on the state, and on the products of its vector with that of each text, which are large if the two have words in common.

    Args:
        space: What `EncodeText` returns around a game with ``actions="index"`` and `History`.
        n: Number of actions.
        history: Steps of the history.
        length: Words of a text.
        size: Numbers of a word's vector.
        hidden: Numbers of the state.
    """

    def __init__(self, space: gym.spaces.Dict, n: int, history: int, length: int, size: int = 32, hidden: int = 128) -> None:
        super().__init__(space, features_dim=hidden + n)
        self.texts = [key for key in space if key not in ("history", "valid_actions")]
        self.n, self.history, self.length, self.hidden = n, history, length, hidden
        self.vectors = torch.nn.EmbeddingBag(2 * VOCABULARY, size, mode="mean", padding_idx=0)
        self.scale = torch.nn.LayerNorm(size)
        count = len(self.texts) + 2 * history
        self.state = torch.nn.Sequential(torch.nn.Linear(count * size, hidden), torch.nn.ReLU())
        self.of_state = torch.nn.Linear(hidden, 64)
        self.of_action = torch.nn.Linear(size + count, 64, bias=False)
        self.score = torch.nn.Linear(64, 1)

    def forward(self, obs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the state and the scores of the actions: shape (batch, hidden + n). The mask drops scores of no action."""
        steps = obs["history"].long().unflatten(1, (self.history, -1))
        parts = [obs[key].long().unsqueeze(1) for key in self.texts] + [steps[:, :, : self.length], steps[:, :, self.length :]]
        read = torch.cat([self._bags(ids) for ids in parts], dim=1)  # (batch, texts, size)
        names = obs["valid_actions"].long().unflatten(1, (self.n, -1))
        valid = int((names[:, :, 0] != 0).sum(1).max())
        actions = self._bags(names[:, : max(1, valid)])  # (batch, most valid actions, size)
        common = actions @ read.transpose(1, 2) / actions.shape[2] ** 0.5  # (batch, most valid actions, texts)
        state = self.state(read.flatten(1))
        layer = torch.relu(self.of_action(torch.cat([actions, common], dim=2)) + self.of_state(state).unsqueeze(1))
        scores = self.score(layer).squeeze(2)
        return torch.cat([state, torch.nn.functional.pad(scores, (0, self.n - scores.shape[1]))], dim=1)

    def _bags(self, ids: torch.Tensor) -> torch.Tensor:
        """Return a vector for each text: ids of shape (batch, texts, words) become (batch, texts, size)."""
        ids = ids[..., : max(2, int((ids != 0).sum(-1).max()))]
        after = ids[..., 1:]
        pairs = torch.where(after != 0, VOCABULARY + (31 * ids[..., :-1] + after) % VOCABULARY, 0)
        both = torch.cat([ids, pairs], dim=-1)
        return self.scale(self.vectors(both.flatten(0, 1)).unflatten(0, both.shape[:2]))  # type: ignore[no-any-return]


class _Halves(torch.nn.Module):
    """Splits the features of `ScoredActions`: the scores are the actor's, and a layer over the state is the critic's."""

    def __init__(self, hidden: int, n: int) -> None:
        super().__init__()
        self.hidden, self.latent_dim_pi, self.latent_dim_vf = hidden, n, 64
        self.value = torch.nn.Sequential(torch.nn.Linear(hidden, 64), torch.nn.ReLU())

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: torch.Tensor) -> torch.Tensor:
        return features[:, self.hidden :]

    def forward_critic(self, features: torch.Tensor) -> torch.Tensor:
        return self.value(features[:, : self.hidden])  # type: ignore[no-any-return]


class ScoringPolicy(MaskableMultiInputActorCriticPolicy):
    """A policy of MaskablePPO whose logits are the scores of `ScoredActions`."""

    def _build_mlp_extractor(self) -> None:
        extractor: Any = self.features_extractor
        self.mlp_extractor = _Halves(extractor.hidden, extractor.n)  # type: ignore[assignment]

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.action_net = torch.nn.Identity()
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)


def _is_text(box: gym.Space[Any]) -> bool:
    """Return whether a space is that of a text's ids."""
    return isinstance(box, spaces.Box) and box.dtype == "int32"
