"""Token trees: a common beginning is in them once, and each token sees its own past alone."""

import random

from gym_text_policies.backends.local.tree import Tree, spans


def test_texts_that_begin_alike_share_their_beginning():
    tree = Tree()
    assert tree.grow(-1, [5, 6, 7]) == [0, 1, 2]
    assert tree.grow(-1, [5, 6, 8]) == [0, 1, 3]
    assert tree.grow(1, [7, 9]) == [2, 4]
    assert tree.grow(0, [6, 6]) == [1, 5], "the same token behind another one is another node"
    assert tree.grow(3, []) == []
    assert (tree.tokens, tree.parents) == ([5, 6, 7, 8, 9, 6], [-1, 0, 1, 1, 2, 1])


def test_the_first_number_of_a_node_lies_in_the_spans_of_its_ancestors_and_in_its_own():
    draw = random.Random(0)
    for size in range(12):
        parents = [draw.randrange(-1, node) for node in range(size)]
        first, behind = spans(parents)
        assert sorted(first) == list(range(size))
        for node in range(size):
            above, path = node, []
            while above >= 0:
                path.append(above)
                above = parents[above]
            assert [other for other in range(size) if first[other] <= first[node] < behind[other]] == sorted(path)
