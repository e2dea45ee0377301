"""Attention over a packed row: segments attend to themselves, and to what they continue."""

from dataclasses import dataclass
from typing import Any

import torch

from gym_text_policies.backends.local.packed import Mask, Segments, packed_attention
from gym_text_policies.backends.local.prefixes import depths, spans


@dataclass
class Alone:
    """A segment that continues nothing."""

    offset: int
    size: int
    mask: Any

    def visible(self, layer, num_layers, keys, values):
        assert 0 <= layer < num_layers
        return keys[:, self.offset : self.offset + self.size], values[:, self.offset : self.offset + self.size]


def mask_of(parents, known):
    """Return the mask of a tree behind known tokens."""
    positions = depths(parents, known)
    return Mask(known, torch.tensor([positions, *spans(parents)]), len(parents), 1 + max(positions), torch.float32)


def test_a_mask_has_a_row_for_each_query_head_that_shares_keys():
    mask = mask_of([-1, 0, 0], 1)
    full = mask.within(None, 2)
    assert full.shape == (2 * 3, 4)
    assert (full[:3] == 0).int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 1]] and torch.equal(full[:3], full[3:])
    assert set(full.flatten().tolist()) == {0.0, float("-inf")}
    assert mask.within(3, 2) is full, "a window of all tokens changes nothing"
    one = mask_of([-1], 5)
    assert one.within(None) is None and one.within(6) is None, "one token that sees all needs no mask"
    assert (one.within(5)[0] == 0).tolist() == [False, True, True, True, True, True]
    assert (mask.within(2)[:3] == 0).tolist() == [
        [True, True, False, False],
        [False, True, True, False],
        [False, True, False, True],
    ]


def test_segments_of_a_row_do_not_see_each_other(small_model):
    network, _ = small_model
    sequences = [[5, 6, 7], [8], [9, 10, 11, 12]]
    offsets = (0, 3, 4)
    segments = [
        Alone(offset, len(tokens), mask_of(range(-1, len(tokens) - 1), 0))
        for offset, tokens in zip(offsets, sequences, strict=True)
    ]
    usual = network.config._attn_implementation
    with torch.inference_mode():
        with packed_attention(network):
            row = network(
                input_ids=torch.tensor([[token for tokens in sequences for token in tokens]]),
                position_ids=torch.tensor([[*range(3), *range(1), *range(4)]]),
                use_cache=False,
                segments=Segments(segments),
            ).logits[0]
        expected = torch.cat([network(torch.tensor([tokens])).logits[0] for tokens in sequences])
    assert float((row - expected).abs().max() / expected.abs().max()) < 1e-5
    assert network.config._attn_implementation == usual
