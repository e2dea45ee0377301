"""Data for other trainers."""

import dataclasses

from gym_text_policies.data.export import completions, openai_chats
from gym_text_policies.data.rows import Row

ROW = Row(
    messages=(
        {"role": "system", "content": "Play."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "drop"},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": "toggle"},
    ),
    labels=("", "", "pick up", "", "toggle"),
    environment="{}",
    episode="e",
    seed=0,
    episode_return=1.0,
    success=True,
    strategy="chat",
    history="all",
    template="t",
)


def test_only_what_is_to_be_learnt_has_weight_1():
    other, played = (chat["messages"] for chat in openai_chats([ROW]))
    assert [message.get("weight") for message in played] == [None, None, 0, None, 1]
    assert other[-1] == {"role": "assistant", "content": "pick up", "weight": 1} and len(other) == 3


def test_the_players_own_words_are_one_chat_an_episode():
    said = dataclasses.replace(ROW, labels=("", "", "I drop it.", "", "toggle"), own_labels=True)
    (chat,) = (chat["messages"] for chat in openai_chats([said]))
    assert [(message["content"], message.get("weight")) for message in chat[2::2]] == [("I drop it.", 1), ("toggle", 1)]


def test_each_answer_has_a_prompt_and_a_completion_without_what_the_player_did_instead():
    thoughts = dataclasses.replace(ROW, thoughts=("", "", "It is near.", "", ""))
    first, second = completions([thoughts])
    assert first["prompt"] == [*ROW.messages[:2]] and second["prompt"] == [*ROW.messages[:4]]
    said = {"role": "assistant", "content": "pick up", "reasoning_content": "It is near."}
    assert (first["completion"], second["completion"]) == ([said], [{"role": "assistant", "content": "toggle"}])
