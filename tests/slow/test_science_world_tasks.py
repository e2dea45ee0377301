"""ScienceWorld: long episodes, and all tasks in turn."""

import copy

from gym_text.science_world.tasks import TASKS, task_and_variation

ID = "ScienceWorldText-v0"


def test_the_list_is_the_same_whatever_the_expert_and_an_index_has_no_path_beyond_it(make):
    envs = [make(ID, task="grow-fruit", expert=expert) for expert in ("path", "off")]
    (obs, info), (other, _) = [env.reset(seed=0) for env in envs]
    beyond = 0
    for action in info["gold_path"]:
        assert other == obs
        beyond += action not in obs["valid_actions"]
        (obs, *_, info), (other, *_) = [env.step(action) for env in envs]
    assert info["success"] and beyond
    assert "gold_path" not in make(ID, task="grow-fruit", actions="index").reset(seed=0)[1]


def test_all_tasks_take_turns_and_each_level_is_the_task_s_own(make, follow_gold_action):
    env = make(ID, task="all", fold="test", expert="replan")
    assert env.unwrapped.fold_size == 1_819
    tasks = list(TASKS.values())
    assert [task_and_variation(env.unwrapped.level_of(seed))[0] for seed in range(60)] == tasks * 2
    for seed in (30 + tasks.index("find-plant"), tasks.index("power-component")):
        own = make(ID, task=tasks[seed % 30], fold="test", expert="replan")
        obs, info = start = env.reset(seed=seed)
        assert start == own.reset(seed=seed // 30)
        assert env.unwrapped.level_of(seed) % 10_000 == own.unwrapped.level_of(seed // 30)
    env.step("look around")  # so that the plan is played on the second game, which is another task's until now
    assert follow_gold_action(env, obs, info)[1]["success"]
    env.reset(seed=30 + tasks.index("find-plant"))
    env.step("look around")
    fork, copied = env.unwrapped.fork(), copy.deepcopy(env)
    assert fork.step("inventory")[0] == copied.step("inventory")[0] == env.step("inventory")[0]
    levels = [seed for seed in range(150) if tasks[seed % 30] == "identify-life-stages-2"]
    assert task_and_variation(env.unwrapped.level_of(levels[4]))[0] != "identify-life-stages-2"  # it has four variations
