"""Token trees: a common beginning is in them once, and each token sees its own past alone."""

import torch

from gym_text_policies.backends.local.tree import Tree, depths, visible


def test_texts_that_begin_alike_share_their_beginning():
    tree = Tree()
    assert tree.grow(-1, [5, 6, 7]) == [0, 1, 2]
    assert tree.grow(-1, [5, 6, 8]) == [0, 1, 3]
    assert tree.grow(1, [7, 9]) == [2, 4]
    assert tree.grow(0, [6, 6]) == [1, 5], "the same token behind another one is another node"
    assert tree.grow(3, []) == []
    assert (tree.tokens, tree.parents) == ([5, 6, 7, 8, 9, 6], [-1, 0, 1, 1, 2, 1])


def test_a_tree_is_as_deep_as_its_longest_text():
    assert depths([-1, 0, 1, 1, 2, -1], 0) == [0, 1, 2, 2, 3, 0]
    assert depths([-1, 0, 0], 7) == [7, 8, 8]
    assert depths([], 3) == []


def test_a_node_sees_what_is_known_its_ancestors_and_itself():
    expected = [[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 1]]
    assert torch.equal(visible([-1, 0, 1, 0], 2), torch.tensor(expected, dtype=torch.bool))
    line = visible([-1, 0, 1], 1)
    assert torch.equal(line, torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.bool))
