"""Search for a policy's parameters, mostly with a scripted model."""

import json
import signal
import subprocess
import sys
import time

import gymnasium as gym
import numpy as np
import pytest

from gym_text import UsageError
from gym_text_policies import PolicyError, ScriptedBackend, cli, load_policy, rollout
from gym_text_policies.environments import make_environment
from gym_text_policies.experiments.settings import read_settings
from gym_text_policies.policies.forms import Parameter, form_of
from gym_text_policies.search import SearchConfig, search
from gym_text_policies.search.evaluate import Evaluator
from gym_text_policies.search.model import Asking, ModelOptimiser
from gym_text_policies.search.optimisers import CmaOptimiser
from gym_text_policies.search.parse import RejectedError, check_new, parse_parameters, reason_of
from gym_text_policies.search.records import Evaluation, EvaluationStore, Proposal
from gym_text_policies.search.run import trajectory_path

CAR = "MountainCarContinuous-v0"
PAIR = [Parameter("w_x", "", -6, 6), Parameter("w_y", "", -6, 6)]


def config(**options):
    values = {"folder": "", "num_rollouts": 3, "evaluations": 6, "max_episode_steps": 200, "optimiser": "random"}
    return SearchConfig(**(values | options))


def tried(found):
    return [(evaluation.parameters, evaluation.returns) for evaluation in found.evaluations]


# ---------------------------------------------------------------- forms


@pytest.mark.parametrize(
    ("env_id", "kind", "count"),
    [
        (CAR, "linear", 3),
        ("MountainCarContinuousLLM-v0", "linear", 3),
        ("CartPole-v1", "linear", 5),
        ("Acrobot-v1", "linear", 21),
        ("Pendulum-v1", "linear", 4),
        ("LunarLander-v3", "linear", 36),
        ("LunarLanderLLM-v2", "linear", 36),
        ("LunarLanderContinuous-v3", "linear", 18),
        ("FrozenLake-v1", "table", 16),
        ("CliffWalking-v1", "table", 48),
        ("Taxi-v4", "table", 500),
        ("Blackjack-v1", "table", 32 * 11 * 2),
        pytest.param("InvertedPendulum-v5", "linear", 5),
        pytest.param("Swimmer-v5", "linear", 18),
        pytest.param("Hopper-v5", "linear", 36),
    ],
)
def test_every_environment_has_a_form_that_acts_in_it(env_id, kind, count):
    if env_id.split("-")[0] in ("InvertedPendulum", "Swimmer", "Hopper"):
        pytest.importorskip("mujoco")
    if env_id not in gym.registry:
        pytest.skip(f"this Gymnasium has no {env_id}")
    env = make_environment(env_id)
    form = form_of(env)
    names = [parameter.name for parameter in form.parameters]
    assert (form.kind, len(names), len(set(names))) == (kind, count, count)
    values = np.random.default_rng(0).uniform(form.low, form.high, size=(4, count))
    obs, _ = env.reset(seed=0)
    numbers = np.repeat(form.numbers(obs)[None], 4, axis=0)
    actions = form.act(values, numbers)
    for i in range(4):
        assert np.array_equal(form.act(values[i : i + 1], numbers[i : i + 1])[0], actions[i])
        action = actions[i] if actions[i].ndim else int(actions[i])
        assert action in env.action_space
    assert form.formula() and all(parameter.meaning for parameter in form.parameters)
    found = search(config(environment=env_id, evaluations=2, num_rollouts=2, max_episode_steps=15))
    assert len(found.evaluations) == 2 and len(found.policy["parameters"]) == count
    env.close()


def test_a_linear_policy_is_its_formula():
    env = make_environment("CartPole-v1")
    without = form_of(env, bias=False)
    assert len(without.parameters) == 4
    assert without.act(np.array([[1.0, 2, 3, 4]]), np.array([[1.0, 1, -1, 0.5]])).tolist() == [1]
    assert without.act(np.array([[1.0, 2, 3, 4]]), np.array([[1.0, -1, -1, 0.5]])).tolist() == [0]
    car = form_of(make_environment(CAR))
    assert [parameter.name for parameter in car.parameters] == ["w_position", "w_velocity", "bias"]
    action = car.act(np.array([[1.0, 2.0, 0.25]]), np.array([[-0.5, 0.05]]))
    assert action.dtype == np.float32 and action[0, 0] == np.float32(-0.15)
    assert car.act(np.array([[6.0, 0, 6]]), np.array([[0.6, 0]])).tolist() == [[1.0]]  # clipped


def test_a_table_takes_the_whole_part():
    form = form_of(make_environment("FrozenLake-v1"))
    table = np.zeros(16)
    table[[3, 5]] = 2.9, 4.0
    assert [int(form.act(table[None], np.array([[state]]))[0]) for state in (3, 5, 0)] == [2, 3, 0]


def test_what_shows_no_numbers_has_no_form():
    with pytest.raises(UsageError, match="expected an environment that shows numbers"):
        form_of(make_environment("BabyAIText-v0"))


# ---------------------------------------------------------------- evaluation


@pytest.mark.parametrize("env_id", [CAR, "CartPole-v1", "LunarLanderLLM-v2", "FrozenLake-v1"])
def test_the_value_is_the_return_of_the_policy_in_the_one_loop(env_id, tmp_path):
    settings = config(environment=env_id, evaluations=3, folder=str(tmp_path), pictures=False)
    found = search(settings)
    env = make_environment(env_id, max_episode_steps=200)
    policy = load_policy(str(tmp_path / "policy.json"), env)
    played = rollout(lambda: make_environment(env_id, max_episode_steps=200), policy, settings.task.seeds)
    assert [episode.total_reward for episode in sorted(played, key=lambda e: e.seed)] == list(found.best.returns)
    with np.load(trajectory_path(tmp_path, found.best.index)) as kept:  # all rollouts end to end
        assert kept["lengths"].tolist() == list(found.best.lengths)
        assert len(kept["actions"]) == sum(found.best.lengths)
        assert len(kept["observations"]) == sum(length + 1 for length in found.best.lengths)


def test_rollouts_in_processes_are_those_in_this_one():
    settings = config(environment="CartPole-v1")
    one, two = Evaluator(settings.task), Evaluator(settings.task, workers=2)
    batch = [(1.0, 1.0, 1.0, 1.0, 0.0), (-1.0, 2.0, 3.0, 1.0, 0.5)]
    try:
        for alone, together in zip(one(batch), two(batch), strict=True):
            assert [(a.seed, a.total_reward, a.length) for a in alone] == [(b.seed, b.total_reward, b.length) for b in together]
    finally:
        one.close()
        two.close()


# ---------------------------------------------------------------- optimisers


@pytest.mark.parametrize("optimiser", ["random", "zero", "cma", "gp", "random then cma", "random then gp", "cma then random"])
def test_a_search_repeats_and_goes_on_where_it_stopped(optimiser, tmp_path):
    settings = {"optimiser": optimiser, "evaluations": 25, "max_episode_steps": 60, "refine_at": 11, "trajectories": False}
    whole = tried(search(config(**settings)))
    assert whole == tried(search(config(**settings)))
    for some in (4, 13, 25):  # in the middle of a generation, too
        part = search(config(**(settings | {"evaluations": some, "folder": str(tmp_path)})))
        assert tried(part) == whole[:some]
    low, high = zip(*[(min(parameters), max(parameters)) for parameters, _ in whole], strict=True)
    assert min(low) >= -6 and max(high) <= 6
    assert (len({parameters for parameters, _ in whole}) == 1) == (optimiser == "zero")


def test_searches_of_other_seeds_differ():
    first, second = (search(config(seed=seed)) for seed in (0, 1))
    assert not {p for p, _ in tried(first)} & {p for p, _ in tried(second)}


def test_cma_refines_what_was_found_at_random():
    found = search(SearchConfig(optimiser="random then cma", evaluations=100, folder="", bias=False, bounds=(-7.0, 7.0), seed=100))
    sources = [evaluation.proposal.source for evaluation in found.evaluations]
    assert sources == ["random"] * 50 + ["cma"] * 50
    assert found.best.proposal.source == "cma" and found.best.value > 90


def test_cma_starts_where_an_episode_succeeded():
    form = form_of(make_environment(CAR))
    idle, solved = (Evaluation(i, Proposal((float(i),) * 3, "random"), (-9.0 * i,), (9,), i) for i in (0, 1))
    for history, place in (([idle, solved], 1), ([idle, idle], 0)):
        proposals = CmaOptimiser(form, 0, sigma=1e-6, start=2).propose(history)
        assert len(proposals) > 4 and np.allclose([p.parameters for p in proposals], place, atol=1e-3)


def test_a_scripted_proposer_gives_the_same_returns_bit_for_bit(tmp_path):
    first = search(config(folder=str(tmp_path / "a")))
    again = search(config(optimiser="scripted", proposals=str(tmp_path / "a"), folder=str(tmp_path / "b")))
    assert tried(again) == tried(first)
    (tmp_path / "list.json").write_text(json.dumps([[0, 1, 2], [3, 4, 5.5]]))
    listed = search(config(optimiser="scripted", proposals=str(tmp_path / "list.json"), evaluations=2))
    assert [parameters for parameters, _ in tried(listed)] == [(0, 1, 2), (3, 4, 5.5)]
    with pytest.raises(UsageError, match="the list ends after 2"):
        search(config(optimiser="scripted", proposals=str(tmp_path / "list.json"), evaluations=3))


def test_a_warm_up_is_random_or_taken_over(tmp_path):
    earlier = search(config(folder=str(tmp_path)))
    warmed = search(config(optimiser="zero", warmup_episodes=4, warmup_folder=str(tmp_path), evaluations=5))
    assert tried(warmed)[:4] == tried(earlier)[:4]
    assert [e.proposal.source for e in warmed.evaluations] == ["loaded"] * 4 + ["zero"]
    fresh = search(config(optimiser="zero", warmup_episodes=2, evaluations=3))
    assert [e.proposal.source for e in fresh.evaluations] == ["random", "random", "zero"]
    with pytest.raises(UsageError, match="expected 9 evaluations"):
        search(config(warmup_episodes=9, warmup_folder=str(tmp_path), evaluations=10))


# ---------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("answer", "values"),
    [
        ("w_x = 1.5, w_y = -2", (1.5, -2)),
        ("**w_x**: 3e-1\n**w_y**: .5", (0.3, 0.5)),
        ("First w_x=1, w_y=1 was bad. Now w_x = 2; w_y = 3.", (2, 3)),
        ("I would take [1, -1.5].", (1, -1.5)),
        ("Between (0, 1) and (2, 3) lies (1.0, 2.0)", (1, 2)),
        ("1.25 -3", (1.25, -3)),
        ("\N{MINUS SIGN}1 and \N{MINUS SIGN}2", (-1, -2)),
        ('{"reason": "try 3", "w_x": 1, "w_y": 2e0}', (1, 2)),
        ('{"w_x": 1, "w_y": 2} no: {"W_X": "3", "W_Y": 4}', (3, 4)),
        ('{"parameters": [5, 6]}', (5, 6)),
        ('{"parameters": {"w_x": 0, "w_y": -6}}', (0, -6)),
        ('{"reason": "cut off", "w_x": 1.5, "w_y": 2.25', (1.5, 2.25)),
    ],
)
def test_numbers_are_read_as_they_are_meant(answer, values):
    assert parse_parameters(answer, PAIR) == values


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "There have to be 2 numbers, one for each parameter; found 0"),
        ("only 3", "found 1"),
        ("1 2 3", "found 3"),
        ("7, 2", "w_x = 7 is not from -6 to 6"),
        ("w_x=1, w_y=1e999", "w_y = inf is not from"),
        ('{"w_x": NaN, "w_y": 1}', "w_x = nan is not"),
        ('{"w_x": true, "w_y": null}', "found 0"),
    ],
)
def test_what_cannot_be_used_is_told_why(answer, reason):
    with pytest.raises(RejectedError, match=reason):
        parse_parameters(answer, PAIR)


def test_a_repeat_is_rejected_with_its_value_and_the_reason_is_kept():
    found = search(config())
    with pytest.raises(RejectedError, match="tried before and gave"):
        check_new([value + 1e-9 for value in found.evaluations[0].parameters], found.evaluations)
    assert reason_of('{"reason": " up ", "p1": 1}') == "up"
    assert reason_of("Higher. p1=1") == "Higher. p1=1" and reason_of(" ") is None


# ---------------------------------------------------------------- the model


def asked(script, *, evaluations=3, **options):
    """Search with a model that answers from a list or a function; return what was found and its requests."""
    requests = []

    def answer(request):
        requests.append(request)
        return script(request) if callable(script) else script[len(requests) - 1]

    settings = config(optimiser="model", evaluations=evaluations, **options)
    return search(settings, backend=ScriptedBackend(answer)), requests


def test_a_model_is_shown_what_was_tried_and_its_words_are_kept():
    found, requests = asked(['{"reason": "begin", "p1": 1, "p2": 2, "p3": 0}', "p1=-1, p2=5, p3=0.5", "[2, 2, 2]"])
    assert [e.parameters for e in found.evaluations] == [(1, 2, 0), (-1, 5, 0.5), (2, 2, 2)]
    assert [e.proposal.reason for e in found.evaluations] == ["begin", "p1=-1, p2=5, p3=0.5", "[2, 2, 2]"]
    assert all(e.proposal.source == "model" and e.proposal.tokens_in > 0 for e in found.evaluations)
    last = requests[-1].messages[-1]["content"]
    for evaluation in found.evaluations[:2]:
        shown = ", ".join(f"p{i + 1}={value:.4g}" for i, value in enumerate(evaluation.parameters))
        assert f"{shown}: {evaluation.value:.2f}" in last
    assert "car" not in last and "position" not in last and "greatest possible" not in last


def test_answers_that_cannot_be_used_are_asked_again_counted_and_replaced():
    found, requests = asked(["p1=9, p2=0, p3=0", "I do not know", "1 2 3", "1 2 3", "1 2 3", "nothing"], evaluations=2, retries=2)
    first, second = (evaluation.proposal for evaluation in found.evaluations)
    assert first.parameters == (1, 2, 3) and first.source == "model" and len(first.rejections) == 2
    assert second.source == "random instead" and len(second.rejections) == 3 and second.reason is None
    assert "tried before" in second.rejections[0] and all(-6 <= value <= 6 for value in second.parameters)
    assert "p1 = 9 is not from -6 to 6" in requests[1].messages[-1]["content"]
    assert requests[1].messages[-2] == {"role": "assistant", "content": "p1=9, p2=0, p3=0"}
    again, _ = asked(["p1=9, p2=0, p3=0", "I do not know", "1 2 3", "1 2 3", "1 2 3", "nothing"], evaluations=2, retries=2)
    assert tried(again) == tried(found)


def test_the_semantic_prompt_tells_the_task_and_how_episodes_went():
    found, requests = asked(["1 2 3", "2 3 4"], evaluations=2, prompt="semantic", optimum=99.5, search_std=0.7)
    first, second = (request.messages[-1]["content"] for request in requests)
    for words in (
        "the flag",
        "w_velocity: from -6 to 6, how much velocity adds",
        "push left hard",
        "is 99.5",
        "about 0.7 away",
        "clipped",
    ):
        assert words in first
    assert f"The latest (w_position=1, w_velocity=2, bias=3: {found.evaluations[0].value:.2f}): " in second
    assert "of 3 episodes succeeded" in second and "velocity -0" in second


def test_several_proposals_of_one_prompt_are_evaluated_before_the_next(tmp_path):
    def script(request):
        rng = np.random.default_rng(request.seed)
        return "2 2 2" if rng.random() < 0.3 else " ".join(f"{value:.3f}" for value in rng.uniform(-7, 6, size=3))

    options = {"evaluations": 9, "batch": 4, "warmup_episodes": 1, "retries": 2}
    whole, requests = asked(script, **options)
    prompts = [request.messages for request in requests if len(request.messages) == 2]
    assert len(prompts) == 8 and len(set(map(str, prompts))) == 2
    assert len({request.seed for request in requests}) == len(requests) > 8
    assert sum(e.parameters == (2, 2, 2) for e in whole.evaluations) <= 1
    for some in (3, 9):  # a search that was stopped within a prompt's proposals goes on
        part, again = asked(script, **(options | {"evaluations": some, "folder": str(tmp_path)}))
        assert tried(part) == tried(whole)[:some]
    assert sum(len(request.messages) == 2 for request in again) == 2 + 4  # not those that were evaluated already
    with pytest.raises(UsageError, match="batch: expected 1"):
        config(optimiser="model", batch=2, temperature=0)


def test_a_conversation_grows_by_a_turn():
    _, requests = asked(["1 2 3", "2 3 4", "3 4 5"], conversation=True)
    messages = [request.messages for request in requests]
    assert messages[2][: len(messages[1]) - 1] == messages[1][:-1]
    assert [m["role"] for m in messages[2]] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert messages[2][4]["content"] == "2 3 4" and "It gave" in messages[2][5]["content"]


def test_structured_answers_have_a_schema_within_the_bounds():
    _, requests = asked(["1 2 3"], evaluations=1)
    schema = requests[0].schema
    assert list(schema["properties"]) == ["reason", "p1", "p2", "p3"] == schema["required"]
    assert (schema["properties"]["p1"]["minimum"], schema["properties"]["p1"]["maximum"]) == (-6, 6)
    _, plain = asked(["1 2 3"], evaluations=1, structured=False, reasons=False)
    assert plain[0].schema is None
    table, lake = asked(["0 " * 16], evaluations=1, environment="FrozenLake-v1")
    assert lake[0].schema["properties"]["p1"] == {"type": "integer", "minimum": 0, "maximum": 3}
    assert table.evaluations[0].parameters == (0,) * 16


def test_the_buffer_keeps_the_best_and_the_latest():
    history = search(config(evaluations=12)).evaluations
    evaluator = Evaluator(config().task)
    optimiser = ModelOptimiser(evaluator.form, 0, ScriptedBackend([""]), Asking(buffer_size=4), evaluator.spec)
    shown = optimiser.messages(history)[-1]["content"]
    ranked = sorted(history, key=lambda e: -e.value)
    wanted = [*ranked[:2], *[e for e in reversed(history) if e not in ranked[:2]][:2]]
    for evaluation in history:
        assert (f": {evaluation.value:.2f}\n" in shown) == any(evaluation.value == other.value for other in wanted)
    evaluator.close()


def test_what_a_provider_refuses_ends_the_run_and_the_next_goes_on(tmp_path):
    def answer(request):
        if broken:
            raise PolicyError("down")
        return "1 2 3" if "1, p2=2" not in request.messages[-1]["content"] else "2 2 2"

    broken = True
    settings = config(optimiser="model", evaluations=2, warmup_episodes=1, folder=str(tmp_path))
    with pytest.raises(PolicyError, match="down"):
        search(settings, backend=ScriptedBackend(answer))
    assert len(EvaluationStore(tmp_path)) == 1
    broken = False
    assert len(search(settings, backend=ScriptedBackend(answer)).evaluations) == 2


# ---------------------------------------------------------------- the run folder and the command


def test_a_killed_search_goes_on_without_repeating(tmp_path):
    options = ["--optimiser", "random", "--environment", "CartPole-v1", "--num-rollouts", "5", "--no-pictures", "--folder"]
    command = [sys.executable, "-m", "gym_text_policies.cli", "search", *options, str(tmp_path / "a"), "--evaluations"]
    process = subprocess.Popen([*command, "100000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    log = tmp_path / "a" / "evaluations.jsonl"
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and not (log.exists() and log.read_bytes().count(b"\n") >= 3):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=60)
    before = log.read_bytes()
    whole = before[: before.rfind(b"\n") + 1]
    done = whole.count(b"\n")
    assert done >= 3
    with log.open("ab") as file:
        file.write(b'{"torn')
    assert cli.main(["search", *options, str(tmp_path / "a"), "--evaluations", str(done + 2)]) == 0
    assert log.read_bytes().startswith(whole)
    indices = [json.loads(line)["index"] for line in log.read_bytes().splitlines()]
    assert indices == list(range(done + 2))
    assert cli.main(["search", *options, str(tmp_path / "b"), "--evaluations", str(done + 2)]) == 0
    strip = lambda path: [json.loads(line)["returns"] for line in path.read_bytes().splitlines()]  # noqa: E731
    assert strip(log) == strip(tmp_path / "b" / "evaluations.jsonl")


def test_one_command_searches_draws_and_is_played_by_bench(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    (tmp_path / "search.yaml").write_text(
        f"environment: {CAR}\noptimiser: random then cma\nevaluations: 12\nbounds: [-7, 7]\nbias: false\nnum_rollouts: 2\n"
        f"max_episode_steps: 150\nfolder: {tmp_path / 'run'}\n"
    )
    assert cli.main(["search", str(tmp_path / "search.yaml"), "--evaluations", "14"]) == 0
    printed = capsys.readouterr().out
    assert "Best of 14 evaluations" in printed and "w_position" in printed
    for name in ("returns.png", "path.png", "trajectory.png", "best.gif"):
        assert (tmp_path / "run" / "pictures" / name).stat().st_size > 1000
    record = json.loads((tmp_path / "run" / "policy.json").read_text())
    assert set(record["parameters"]) == {"w_position", "w_velocity"} and record["environment"] == CAR
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert stored["bounds"] == [-7, 7] and "optimum" not in stored
    played = [
        "bench",
        "--folder",
        str(tmp_path / "bench"),
        "--seeds",
        "2",
        "--environments",
        f"{CAR}?max_episode_steps=150",
        "--models",
    ]
    assert cli.main([*played, str(tmp_path / "run" / "policy.json")]) == 0
    assert "policy.json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--environment", "CartPol-v1"], "Did you mean 'CartPole-v1'"),
        (["--optimiser", "cmaes"], "Did you mean 'cma'"),
        (["--optimiser", "model then cma then gp"], "expected one, or two"),
        (["--bounds", "3", "-3"], "bounds: expected the least"),
        (["--optimiser", "scripted"], "proposals: expected a JSON file"),
        (["--environment", "BabyAIText-v0", "--optimiser", "random"], "shows numbers"),
        (["missing.yaml"], "expected a YAML file"),
    ],
)
def test_a_mistake_is_one_line(words, message, tmp_path, capsys):
    assert cli.main(["search", *words, "--folder", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_unknown_keys_of_a_file_are_named_and_options_count_more(tmp_path):
    path = tmp_path / "search.yaml"
    path.write_text("evaluatons: 3\n")
    with pytest.raises(UsageError, match="Did you mean 'evaluations'"):
        read_settings(SearchConfig, path)
    for text, message in {
        "bias: maybe": "line 1: bias: expected true or false; got 'maybe'",
        "seed: 1\nbounds: [a, 6]": r"line 2: bounds: expected a number",
        "bounds: 6": "bounds: expected a list, each a number; got 6",
        "seed: 1\nseed: 2": "line 2: expected each key once",
        "- seed": "expected keys",
    }.items():
        path.write_text(text)
        with pytest.raises(UsageError, match=message):
            read_settings(SearchConfig, path)
    path.write_text("evaluations: 3\nbias: no\nbounds: [-5, 5.5]\nsearch_std: 0.5\nbuffer_size: 7\nwarmup_episodes: 2\n")
    resolved = read_settings(SearchConfig, path, {"evaluations": 9})
    assert (resolved.bias, resolved.bounds) == (False, (-5.0, 5.5))
    assert (resolved.evaluations, resolved.search_std, resolved.buffer_size, resolved.warmup_episodes) == (9, 0.5, 7, 2)


def test_another_search_in_the_same_folder_is_refused(tmp_path):
    search(config(folder=str(tmp_path)))
    with pytest.raises(UsageError, match="num_rollouts: stored 3, given 4"):
        search(config(folder=str(tmp_path), num_rollouts=4))


def test_a_policy_of_another_environment_is_refused(tmp_path):
    search(config(folder=str(tmp_path), evaluations=1))
    with pytest.raises(UsageError, match=f"expected a policy for CartPole-v1.*found on '{CAR}'"):
        load_policy(str(tmp_path / "policy.json"), make_environment("CartPole-v1"))
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(UsageError, match=r"expected the policy\.json of a search"):
        load_policy(str(tmp_path / "broken.json"), make_environment(CAR))
