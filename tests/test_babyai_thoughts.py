"""Thoughts of BabyAI's expert, on real episodes."""

import re

import pytest


@pytest.mark.parametrize("task", ["putnext", "open", "pick_up_seq_go_to"])
def test_a_thought_says_where_the_things_of_the_mission_are_as_far_as_they_were_seen(task, make):
    env = make("BabyAIText-v0", task=task, expert="replan")
    said = set()
    for seed in range(4):
        obs, info = env.reset(seed=seed)
        observations, actions, over = [obs], [], False
        while not over:
            actions.append(info["gold_action"])
            write = env.get_wrapper_attr("thought")
            written = write(observations, actions)
            assert written == write(tuple(observations), tuple(actions))
            facts, _, following = written.partition(". now: ")
            assert following == actions[-1]
            for thing, place in re.findall(r"([a-z ]+): ([^;]+)", facts):
                color, _, kind = thing.strip().rpartition(" ")
                line = rf"^a (?:\w+ )?{color or '.*'} {kind} {place}$"
                seen = [bool(re.search(rf"{color} {kind} \d", past["text"])) for past in observations]
                assert {
                    "carried": f"You carry a {thing.strip()}" in obs["text"],
                    "not seen": not any(seen),
                    "out of view": any(seen[:-1]) and not seen[-1],
                }.get(place, bool(re.search(line, obs["text"], re.MULTILINE))), written
                said.add(place if place in ("carried", "not seen", "out of view") else "steps")
            names = [action.name for action in env.get_wrapper_attr("text_spec").actions]
            obs, _, terminated, truncated, info = env.step(names.index(actions[-1]))
            observations.append(obs)
            over = terminated or truncated
    assert said >= {"steps", "carried", "out of view"}


def test_a_locked_door_asks_for_its_key_and_a_thing_of_any_colour_is_the_first_in_view(make):
    write = make("BabyAIText-v0").get_wrapper_attr("thought")
    texts = ["a wall 1 step left", "a locked red door 2 steps forward\na blue key 1 step right\na red key 3 steps left"]
    observations = [{"text": text, "goal": "open a door, then pick up the blue box"} for text in texts]
    assert write(observations[:1], ["turn left"]) == "door: not seen; blue box: not seen. now: turn left"
    assert write(observations, ["turn left", "go forward"]) == (
        "door: 2 steps forward; blue box: not seen; red key: 3 steps left. now: go forward"
    )
