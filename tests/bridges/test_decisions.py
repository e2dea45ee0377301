"""`gym-text serve --model`, asked over the wire by the clients of the two formats: ollama's and openai's."""

import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from http.client import HTTPConnection

import gymnasium as gym
import pytest
import torch
from ollama import Client, ResponseError
from openai import BadRequestError, NotFoundError, OpenAI
from serving import serving as process_serving
from transformers import AutoModelForCausalLM, AutoTokenizer

from gym_text import UsageError
from gym_text_policies import load_policy, rollout
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.load import load_backend
from gym_text_policies.bridges.decisions import create_app
from gym_text_policies.bridges.serving import serving
from gym_text_policies.commands.serve import ServeConfig
from gym_text_policies.data.questions import typed_questions
from gym_text_policies.data.rows import rows_of
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.policy import text_spec

STATE = "You see a red ball and a locked door. You carry a blue key."
TEAM = {"type": "choice", "instructions": "What next?", "criteria": {"left": "turn left", "go": None, "open": "open the door"}}
OPEN = {"type": "noul", "instructions": "Is a door open?"}
FAR = {"type": "score", "instructions": "How far is the ball?", "criteria": ["near", "some steps away", "far"]}
CHAT = [{"role": "system", "content": "You play a game."}, {"role": "user", "content": STATE}]


@pytest.fixture(scope="module")
def labelled(decision_model):
    with serving(create_app(decision_model, "tiny", decide="labels")) as address:
        yield address


def ask(url, state=STATE, model="tiny", **questions):
    with Client(url) as client:
        return client.systemone(model, state, questions).answers


def status(url, body, path="/v1/systemone"):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    with refused.value as reply:
        return reply.code, json.load(reply)


def test_the_command_serves_a_model_to_ollamas_client(tiny_model, tmp_path, decision_model):
    command = ["gym-text", "serve", "--model", tiny_model]
    with process_serving(command, "/health", tmp_path / "log") as url, Client(url) as client:
        reply = client.systemone(tiny_model, STATE, {"next": TEAM, "open": OPEN, "far": FAR})
    user = {"role": "user", "content": f"{STATE}\n\nWhat next?"}
    expected = decision_model.answer([Request((user,), ("turn left", "go", "open the door"))])[0].probabilities
    answer = reply.answers["next"]
    assert list(answer.probabilities) == ["left", "go", "open"]
    assert list(answer.probabilities.values()) == pytest.approx(list(expected.values()), rel=1e-4)
    assert answer.probabilities[answer.choice] == max(expected.values()) == pytest.approx((2 * answer.confidence + 1) / 3)
    assert 0 < reply.answers["open"].noul < 1
    far = reply.answers["far"]
    assert far.legend == {"0": "near", "1": "some steps away", "2": "far"}
    assert far.score == pytest.approx(far.probabilities["1"] + 2 * far.probabilities["2"])
    assert reply.usage.input_tokens > 100 and reply.usage.output_tokens == 0


def test_openais_client_gets_the_probabilities_of_mode_choose_for_a_chat(decision_url, decision_model):
    choices = ("turn left", "go forward", "pick up")
    questions = [
        {"type": "choice", "name": "next", "instructions": "", "choices": [{"value": choice} for choice in choices]},
        {"type": "predicate", "instructions": "Is a door open?"},
        {"type": "score", "instructions": "How far?", "levels": [{"label": "near"}, {"label": "far", "description": "10 steps"}]},
        {"type": "choice", "instructions": "Is it?", "choices": [{"value": True}, {"value": "true"}, {"value": False}]},
    ]
    with OpenAI(base_url=f"{decision_url}/v1", api_key="none") as client:
        decision = client.decisions.create(model="tiny", input=CHAT, questions=questions)
    chosen, predicate, score, booleans = decision.answers
    expected = decision_model.answer([Request(tuple(CHAT), choices)])[0].probabilities
    assert {row.value: row.probability for row in chosen.probabilities} == pytest.approx(dict(expected))
    assert (chosen.name, chosen.choice, predicate.name) == ("next", max(expected, key=expected.get), None)
    assert [(row.label, row.value) for row in score.probabilities] == [("near", 0), ("far", 1)]
    assert [row.value for row in booleans.probabilities] == [True, "true", False]
    assert booleans.probabilities[0].probability == booleans.probabilities[1].probability, "equal texts share a probability"
    assert decision.usage.total_tokens == decision.usage.input_tokens > decision.usage.input_tokens_details.cached_tokens


@pytest.mark.parametrize("path", ["decisions", "systemone"])
def test_rounds_give_the_probabilities_of_one_question_where_no_score_depends_on_other_options(decision_url, path):
    request = Request(tuple(CHAT), tuple(f"take the {name}" for name in ("ball", "key", "box", "door", "cup", "pan", "hat", "jar")))
    answers = []
    for rounds in (True, 5, 3):
        with closing(load_backend("openai:tiny", base_url=f"{decision_url}/v1/{path}", rounds=rounds)) as backend:
            answers += backend.answer([request])
    assert [answer.rounds for answer in answers] == [1, 2, 2] and min(answer.tokens_in for answer in answers) > 0
    for answer in answers[1:]:
        assert answer.probabilities == pytest.approx(dict(answers[0].probabilities), rel=1e-4)
        assert list(answer.probabilities) == list(request.choices)


def test_a_state_of_messages_is_a_chat_and_other_json_a_text(decision_url, decision_model):
    asked = {**TEAM, "instructions": "", "criteria": {"left": None, "right": None}}
    expected = decision_model.answer([Request(tuple(CHAT), ("left", "right"))])[0].probabilities
    assert ask(decision_url, CHAT, q=asked)["q"].probabilities == pytest.approx(dict(expected))
    written = {"role": "user", "content": '{"room": "kitchen"}'}
    expected = decision_model.answer([Request((written,), ("left", "right"))])[0].probabilities
    assert ask(decision_url, {"room": "kitchen"}, q=asked)["q"].probabilities == pytest.approx(dict(expected))


def test_no_answer_depends_on_other_options_their_order_or_any_name(decision_url):
    base = ask(decision_url, q=TEAM)["q"].probabilities
    texts = {name: text or name for name, text in TEAM["criteria"].items()}
    changed = {
        "backwards": dict(reversed(texts.items())),
        "one less": {"left": texts["left"], "open": texts["open"]},
        "one more": {**texts, "sing": "sing a song"},
        "renamed": {f"option {n}": text for n, text in enumerate(texts.values())},
        "cloned": {**texts, "again": texts["left"]},
    }
    answers = ask(decision_url, **{name: {**TEAM, "criteria": criteria} for name, criteria in changed.items()})
    assert answers["backwards"].probabilities == pytest.approx(base, rel=1e-4)
    for name in ("one less", "one more"):
        kept = {option: share for option, share in answers[name].probabilities.items() if option in base}
        whole = sum(base[option] for option in kept)
        rest = {option: base[option] / whole * sum(kept.values()) for option in kept}
        assert kept == pytest.approx(rest, rel=1e-4)
    assert list(answers["renamed"].probabilities.values()) == pytest.approx(list(base.values()), rel=1e-4)
    cloned = answers["cloned"].probabilities
    assert cloned["left"] == cloned["again"] == pytest.approx(base["left"] / 2, rel=1e-4)
    yes = ask(decision_url, noul=OPEN, choice={**OPEN, "type": "choice", "criteria": {"no": "No", "yes": "Yes"}})
    assert yes["choice"].probabilities["yes"] == pytest.approx(yes["noul"].noul, rel=1e-4)


def test_labels_are_compared_by_the_one_token_of_each(labelled, tiny_model):
    shown = f"{STATE}\n\nWhat next?\nA. left: turn left\nB. go\nC. open: open the door\n"
    shown += "Answer with the letter of the option that is right."
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    chat = [{"role": "user", "content": shown}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(tiny_model)(ids).logits[0, -1]
    expected = torch.softmax(logits[[tokenizer.encode(label, add_special_tokens=False)[0] for label in "ABC"]], 0)
    assert list(ask(labelled, q=TEAM)["q"].probabilities.values()) == pytest.approx(expected.tolist(), rel=1e-3)
    with pytest.raises(ResponseError, match="62 options") as refused:
        ask(labelled, q={**TEAM, "criteria": dict.fromkeys(map(str, range(63)))})
    assert refused.value.status_code == 422


def test_what_is_played_by_labels_is_taught_and_exported_as_the_server_asks_it(labelled, tiny_model):
    make_env = partial(gym.make, "BabyAIText-v0", fold="train", max_episode_steps=5)
    asked = PolicyConfig(strategy="labels", mode="choose", history=0, with_reward=False)
    (episode,) = rollout(make_env, load_policy(tiny_model, make_env(), strategy="labels", mode="choose"), [3])
    rows = rows_of(episode, text_spec(make_env()), asked, "own")
    examples = [example for row in rows for example in row.examples()]
    for step, example, record in zip(episode.steps, examples, typed_questions(rows), strict=True):
        names = list(step.decision.probabilities)
        assert (example.messages, example.answer) == (step.decision.messages, "ABCDEF"[names.index(step.decision.action)])
        question = record["questions"]["action"]
        assert (question.pop("label"), list(question["criteria"])) == (step.decision.action, names)
        answered = ask(labelled, record["state"], action=question)["action"].probabilities
        assert answered == pytest.approx(dict(step.decision.probabilities)) and step.decision.probability_kind == "letter"


def test_a_state_is_read_once_for_its_questions_and_requests_that_wait_are_one_batch(tiny_model, monkeypatch):
    model, sizes = load_backend(tiny_model), []
    compute = type(model).answer
    monkeypatch.setattr(type(model), "answer", lambda self, requests: sizes.append(len(requests)) or compute(self, requests))
    questions = {str(n): {**OPEN, "instructions": f"Is it {n}?"} for n in range(6)}
    states = [f"{n}: {STATE * 4}" for n in range(4)]
    with serving(create_app(model, "tiny")) as url, ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda state: ask(url, state, **questions), states))
        alone = [ask(url, state, **questions) for state in states]
    assert together == alone
    length = model.count(states[0])
    assert model.tokens_computed < 4 * (length + 6 * length / 2), "six readings of each state would be more"
    assert sum(sizes[:-8]) == 24 and max(sizes) >= 5


def test_a_search_that_asks_again_with_other_options_reads_only_the_new_ones(decision_url, decision_model):
    states = [f"towers {n} {n + 1} {n + 2}" for n in range(30)]
    asked = [{**TEAM, "instructions": "Which next?", "criteria": dict.fromkeys(some)} for some in (states[:-1], states[::-1])]
    first = ask(decision_url, q=asked[0])["q"].probabilities
    before = decision_model.tokens_computed
    second = ask(decision_url, q=asked[1])["q"].probabilities
    assert decision_model.tokens_computed - before <= 1 + decision_model.count(states[-1])
    left = 1 - second.pop(states[-1])
    assert {name: share / left for name, share in second.items()} == pytest.approx(first, rel=1e-5)


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"questions": {}}, 422, "at least 1 item"),
        ({"questions": {"q": {**TEAM, "criteria": {"one": None}}}}, 422, "at least 2 items"),
        ({"questions": {"q": {**TEAM, "criteria": dict.fromkeys(map(str, range(256)))}}}, 422, "at most 255 items"),
        ({"questions": {"q": {**TEAM, "type": "word"}}}, 422, "'choice', 'score', 'noul'"),
        ({"temperature": 1}, 422, "Extra inputs"),
        ({"model": "jev-latest"}, 404, "'tiny' is"),
        ({"state": "word " * 5000}, 400, "expected a prompt of at most"),
        ({"state": [*CHAT, {"role": "assistant", "content": "No."}] * 300}, 400, "fits into the model's window"),
        ({"questions": {"q": {**TEAM, "criteria": {"\ud83d": None, "b": None}}}}, 422, "valid string"),
    ],
)
def test_a_refusal_has_the_formats_status_and_says_what_was_expected(decision_url, change, code, words):
    answered, reply = status(decision_url, {"model": "tiny", "state": STATE, "questions": {"q": OPEN}} | change)
    assert answered == code and words in str(reply["detail"])


@pytest.mark.parametrize(("header", "code"), [({"Content-Length": "2000000"}, 413), ({"Content-Encoding": "zstd"}, 415)])
def test_a_body_that_is_too_long_or_compressed_is_refused_unread(decision_url, header, code):
    with closing(HTTPConnection(decision_url.removeprefix("http://"))) as connection:
        connection.putrequest("POST", "/v1/systemone")
        for name, value in ({"Content-Length": "0"} | header).items():
            connection.putheader(name, value)
        connection.endheaders()
        reply = connection.getresponse()
        assert reply.status == code and "expected a body" in json.load(reply)["detail"]


def test_openais_client_raises_its_own_errors(decision_url):
    with OpenAI(base_url=f"{decision_url}/v1", api_key="none", max_retries=0) as client:
        question = {"type": "predicate", "instructions": "Is it?"}
        with pytest.raises(NotFoundError, match="'tiny' is"):
            client.decisions.create(model="gpt-6-luna", input=STATE, questions=[question])
        twice = {"type": "choice", "instructions": "", "choices": [{"value": "a"}, {"value": "a"}]}
        for wrong, words in ((twice, "unique"), ({**twice, "choices": []}, "2 to 255"), ({**question, "type": "x"}, "type")):
            with pytest.raises(BadRequestError, match=words) as refused:
                client.decisions.create(model="tiny", input=STATE, questions=[wrong])
            assert refused.value.body["type"] == "invalid_request_error"
    body = {"model": "tiny", "input": STATE, "questions": [question]}
    part = [{"role": "user", "content": [{"type": "input_text"}]}]
    named = {"type": "choice", "instructions": "", "choices": [{"label": "a"}, {"label": "b"}]}
    for change, words in (
        ({"input": []}, "at least 1 item"),
        ({"input": part}, "required"),
        ({"questions": [named]}, "each with a value"),
    ):
        code, reply = status(decision_url, {**body, **change}, "/v1/decisions")
        assert code == 400 and words in reply["error"]["message"]


def test_one_request_too_many_is_refused_and_one_that_fails_harms_no_other(decision_model):
    body = {"model": "tiny", "state": STATE, "questions": {"q": OPEN}}
    with serving(create_app(decision_model, "tiny", max_sessions=1)) as url, ThreadPoolExecutor(8) as pool:

        def code(n):
            request = urllib.request.Request(f"{url}/v1/systemone", json.dumps({**body, "state": f"{n} {STATE * 20}"}).encode())
            request.add_header("Content-Type", "application/json")
            try:
                with urllib.request.urlopen(request) as reply:
                    return reply.status
            except urllib.error.HTTPError as error:
                with error:
                    return error.code

        codes = set(pool.map(code, range(24)))
    assert codes == {200, 429}
    with serving(create_app(decision_model, "tiny")) as url, ThreadPoolExecutor(4) as pool:
        states = ["word " * 5000, *(f"{n} {STATE}" for n in range(3))]
        tried = [pool.submit(ask, url, state, q=OPEN) for state in states]
        assert [type(each.exception()) for each in tried] == [ResponseError, *[type(None)] * 3]


def test_what_cannot_be_served_is_refused_before_a_model_is_read():
    for wrong in ({}, {"environment": "BabyAIText-v0", "model": "smollm2"}):
        with pytest.raises(UsageError, match="environment: expected"):
            ServeConfig(**wrong)
    with pytest.raises(UsageError, match="decide: expected"):
        ServeConfig(model="smollm2", decide="letters")
    with pytest.raises(UsageError, match="one of this process"):
        create_app(load_backend("scripted:go"), "scripted:go")
