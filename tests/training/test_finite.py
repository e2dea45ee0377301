"""What is not finite is named before it changes a weight or is written."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from gym_text.errors import RunError
from gym_text_policies.training.model.finite import check_finite, check_weights


@pytest.mark.parametrize("bad", [math.nan, np.array([1.0, -math.inf]), torch.tensor([[0.0, math.nan]], dtype=torch.bfloat16)])
def test_the_first_value_that_is_not_finite_is_named_with_where_it_came_up(bad):
    check_finite("step 1", loss=1.0, rewards=np.zeros(3), logits=torch.ones(2, requires_grad=True))
    with pytest.raises(
        RunError, match=r"step 2: expected finite numbers to learn from; loss is (nan|-inf)\. It has changed no weight"
    ):
        check_finite("step 2", rewards=1.0, loss=bad, later=math.nan)


def test_tensors_beyond_what_their_format_holds_are_not_written():
    check_weights(Path("run/adapter.safetensors"), {"a": torch.zeros(2), "empty": torch.zeros(0)})
    tensors = {"a": torch.zeros(2), "b": torch.tensor([1e6]).half()}
    with pytest.raises(RunError, match=r"adapter\.safetensors: expected finite tensors to write; b is inf\."):
        check_weights(Path("run/adapter.safetensors"), tensors)
