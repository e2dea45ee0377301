"""Models and adapters out of folders, on a base small enough to be made here; the tokenizer is the embedded model's."""

import functools
import gc
import json
import os
import shutil
import warnings
from pathlib import Path

import gymnasium as gym
import huggingface_hub
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from gym_text import UsageError
from gym_text_policies import load_policy
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.load import load_backend
from gym_text_policies.backends.local import adapters, loading, models, smollm2
from gym_text_policies.backends.local.linear import FusedLinear
from gym_text_policies.backends.local.tokens import prompt_tokens, text_tokens
from gym_text_policies.data.rows import trained_as, training_prompt
from gym_text_policies.policies.config import PolicyConfig, settings_of
from gym_text_policies.policy import environment_config, episode_key
from gym_text_policies.training.model.lora import add_lora, load_base
from gym_text_policies.training.model.merge import MergeConfig, merge
from gym_text_policies.training.model.saving import save_adapter

REQUEST = Request(({"role": "user", "content": "A red ball."},), ("turn left", "go forward", "pick up"))


@pytest.fixture(scope="module")
def base(tmp_path_factory, small_model):
    """Return the folder of the small model."""
    folder = tmp_path_factory.mktemp("models") / "base"
    for part in small_model:
        part.save_pretrained(folder)
    return folder


@pytest.fixture
def embedded(base, monkeypatch):
    """Let the small model be the embedded one."""
    monkeypatch.setattr(smollm2, "smollm2_folder", lambda: base)
    loading._kept.clear()
    yield
    loading._kept.clear()


def make_adapter(base, folder, **kind):
    """Save an adapter of peft's in a folder; return the folder, and the base with it."""
    import peft
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    config = peft.LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM", **kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers by a name that is going out of use
        model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).eval()
    model.save_pretrained(folder)
    change(folder, base_model_name_or_path="smollm2")
    return folder, model


@pytest.fixture(scope="module")
def made(base):
    """Return the folder of an adapter, and the base with it, as peft has them."""
    return make_adapter(base, base.parent / "adapter")


@pytest.fixture
def adapter(made, tmp_path):
    """Return a copy of the adapter that a test may spoil."""
    return shutil.copytree(made[0], tmp_path / "adapter")


def change(folder, **values):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def asked(folder, template="0123", **how):
    learnt = {"strategy": "chat", "history": "all", "with_reward": False, **how}
    (folder / "training.json").write_text(json.dumps({"asked": learnt, "template": template}))


def scores_of_peft(model, backend):
    """Return the probabilities that a model of peft's gives the choices of the request."""
    scores = []
    for choice in REQUEST.choices:
        prompt, answer = prompt_tokens(backend._tokenizer, REQUEST.messages), [*text_tokens(backend._tokenizer, choice), 2]
        with torch.inference_mode():
            log_probs = model(input_ids=torch.tensor([prompt + answer])).logits[0].log_softmax(-1)
        scores.append(sum(float(log_probs[len(prompt) + i - 1, token]) for i, token in enumerate(answer)))
    weights = np.exp(np.array(scores) - max(scores))
    return list(weights / weights.sum())


def test_an_adapter_scores_as_peft_does_and_takes_no_more_than_its_own_weights(made, adapter, embedded):
    backend = load_backend(str(adapter))
    found = backend.answer([REQUEST])[0].probabilities
    assert list(found.values()) == pytest.approx(scores_of_peft(made[1], backend), abs=1e-4)
    plain = (other := load_backend("smollm2")).answer([REQUEST])[0].probabilities
    assert max(abs(found[choice] - plain[choice]) for choice in found) > 1e-3, "the update does something"
    adapted, of_base = backend._prefixes._model, other._prefixes._model
    if type(of_base.lm_head) is FusedLinear:
        assert [*map(id, adapted.parameters())] == [*map(id, of_base.parameters())], "what it does not change is once in memory"
        assert adapted.lm_head is of_base.lm_head
        assert adapted.model.layers[0].mlp.up_proj._base is of_base.model.layers[0].mlp.up_proj


@pytest.mark.parametrize("kind", [{"use_dora": True}, {"modules_to_save": ["norm"]}])
def test_an_adapter_that_is_more_than_a_product_of_low_rank_is_merged(kind, base, embedded, tmp_path):
    folder, model = make_adapter(base, tmp_path / "adapter", **kind)
    backend = load_backend(str(folder))
    assert list(backend.answer([REQUEST])[0].probabilities.values()) == pytest.approx(scores_of_peft(model, backend), abs=1e-4)
    assert "Adapted" not in str(backend._prefixes._model)


def test_an_adapter_that_predicts_no_numbers_is_refused_also_where_others_like_it_were_loaded(made, adapter, embedded):
    load_backend(str(made[0]))
    weights = load_file(adapter / "adapter_model.safetensors")
    next(iter(weights.values()))[:] = float("nan")
    save_file(weights, adapter / "adapter_model.safetensors")
    with pytest.raises(UsageError, match="expected one whose probabilities can be computed reliably"):
        load_backend(str(adapter))


def test_a_loaded_model_holds_no_page_of_its_file(base, tmp_path):
    folder = shutil.copytree(base, tmp_path / "model")
    model = load_backend(str(folder))._prefixes._model
    if type(model.lm_head) is FusedLinear and Path("/proc/self/maps").exists():
        gc.collect()
        assert str(folder) not in Path("/proc/self/maps").read_text("utf-8")


@pytest.mark.parametrize(
    ("learnt", "message"),
    [
        ({"expert_share": 1}, "expected under 'asked' only how the model is asked .*; got expert_share"),
        ({"model": "gold", "options": {"base_url": "http://127.0.0.1"}}, "; got model, options"),
        ({"strategy": "few_shot"}, "expected a strategy without the expert's examples; got 'few_shot'"),
    ],
)
def test_a_model_s_own_record_sets_how_it_is_asked_and_nothing_else(adapter, embedded, learnt, message):
    asked(adapter, **learnt)
    with pytest.raises(UsageError, match=message):
        load_policy(str(adapter), gym.make("BabyAIText-v0"))
    with pytest.raises(UsageError, match=message):
        trained_as(PolicyConfig(str(adapter)), str(adapter))
    asked(adapter)
    assert load_policy(str(adapter), gym.make("BabyAIText-v0"), expert_share=1.0).config["expert_share"] == 1, "the user may"


def test_the_record_of_an_adapter_names_its_base_and_its_weights(adapter, embedded):
    backend = load_backend(str(adapter))
    assert backend.config == {
        "backend": "transformers",
        "model": str(adapter),
        "base": "smollm2",
        "adapter": backend.config["adapter"],
    }
    assert load_backend(str(adapter)) is backend
    change(adapter, lora_alpha=16)
    again = load_backend(str(adapter))
    assert again is not backend and again.config["adapter"] != backend.config["adapter"]


def test_an_adapter_that_ships_is_named_and_asked_as_it_has_learnt(adapter, embedded, monkeypatch):
    monkeypatch.setattr(adapters, "ADAPTERS", adapter.parent)
    asked(adapter)
    env = gym.make("BabyAIText-v0", expert="off")
    policy = load_policy("adapters/adapter", env, mode="choose")
    assert {key: policy.config[key] for key in ("model", "base", "strategy", "history", "mode")} == {
        "model": "adapters/adapter", "base": "smollm2", "strategy": "chat", "history": "all", "mode": "choose",
    }  # fmt: skip
    assert load_policy("adapters/adapter", env, strategy="zero_shot").config["strategy"] == "zero_shot"
    obs, _ = policy.wrap(env).reset(seed=0)
    assert policy(obs) in range(6)
    with pytest.raises(UsageError, match="Did you mean 'adapters/adapter'"):
        load_policy("adapters/adaptr", env)
    with pytest.raises(UsageError, match="adapter: expected one of"):
        load_policy("adapters/../adapter", env)
    (adapter / "training.json").write_text("{")
    with pytest.raises(UsageError, match=r"expected JSON in training\.json"):
        load_policy("adapters/adapter", env)


def spoil_by_cutting(folder):
    weights = folder / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def spoil_by_pickle(folder):
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")


def spoil_by_a_surplus(folder):
    change(folder, target_modules=["q_proj"])


def spoil_by_biases(folder):
    weights = load_file(folder / "adapter_model.safetensors")
    biases = {name.replace(".weight", ".bias"): torch.zeros(len(one)) for name, one in weights.items() if "lora_B" in name}
    save_file(weights | biases, folder / "adapter_model.safetensors")
    change(folder, lora_bias=True)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoil_by_biases, "expected one that fits its base 'smollm2'; .*has no bias"),
        (spoil_by_cutting, "expected one that fits its base 'smollm2'; .*incomplete"),
        (spoil_by_pickle, r"got adapter_model\.bin\. Pickles are never loaded"),
        (spoil_by_a_surplus, "expected one that fits its base 'smollm2'; .* have no place"),
        (lambda folder: change(folder, r=8), "expected one that fits its base 'smollm2'; .*size mismatch"),
        (lambda folder: change(folder, base_model_name_or_path=str(folder)), "expected a model as its base; got the adapter"),
        (lambda folder: change(folder, megatron_config={"a": 1}, megatron_core="antigravity"), "expected a .* that names no code"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*(lora_bias|invalid shape)")
def test_an_adapter_that_cannot_be_used_is_one_clear_sentence(adapter, embedded, spoil, message):
    spoil(adapter)
    with pytest.raises(UsageError, match=message) as caught:
        load_backend(str(adapter))
    assert "\n" not in str(caught.value)
    if spoil == spoil_by_biases:
        with pytest.raises(UsageError, match=r"expected an adapter that can be merged into its base 'smollm2'; .*has no bias"):
            merge(MergeConfig(str(adapter), str(adapter.parent / "merged")))


def test_a_model_whose_weights_are_a_pickle_or_cut_off_is_refused(base, tmp_path):
    folder = shutil.copytree(base, tmp_path / "model")
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-100])
    with pytest.raises(UsageError, match="expected one that can be loaded"):
        load_backend(str(folder))
    weights.unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(UsageError, match="expected one that can be loaded"):
        load_backend(str(folder))


def test_precision_and_place_are_part_of_what_identifies_a_model_except_for_the_defaults(embedded):
    defaults = {"backend": "transformers", "model": "smollm2"}
    if not torch.cuda.is_available():
        assert load_backend("smollm2").config == defaults
        assert load_backend("smollm2", dtype="float32", device="cpu").config == defaults
    assert load_backend("smollm2", dtype="bfloat16").config["dtype"] == "bfloat16"


@pytest.mark.parametrize("key", ["attn_implementation", "experts_implementation"])
def test_a_model_whose_configuration_names_code_is_refused_before_it_is_fetched(base, tmp_path, key):
    folder = shutil.copytree(base, tmp_path / "theirs")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {key: "theirs/kernels"}))
    with pytest.raises(UsageError, match=r"expected a configuration that names no code; got .*'theirs/kernels'"):
        load_backend(str(folder))


@pytest.mark.parametrize("name", sorted(path.parent.name for path in adapters.ADAPTERS.glob(f"*/{adapters.RECORD}")))
def test_an_adapter_that_ships_is_asked_in_the_words_that_it_has_learnt(name):
    record = json.loads((adapters.ADAPTERS / name / adapters.RECORD).read_text())
    assert training_prompt(PolicyConfig(**record["asked"])).config["template"] == record["template"]


def weights_changed(folder, file="model.safetensors"):
    """Change one byte in the middle of a file, without a change of its size or the time of its last modification."""
    path = folder / file
    before, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    with path.open("r+b") as stream:
        stream.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def longer(path):
    path.write_text(path.read_text() + " ")


def key_of(model, **settings):
    env = gym.make("BabyAIText-v0", expert="off")
    policy = load_policy(str(model), env, mode="choose", **settings)
    return episode_key(environment_config(policy.wrap(env)), policy.config, 0)


def test_other_weights_in_the_same_folder_are_another_model(base, tmp_path):
    folder = shutil.copytree(base, tmp_path / "model")
    before, keys = load_backend(str(folder)), [key_of(folder)]
    for change_it in (
        lambda: weights_changed(folder),
        *(functools.partial(longer, folder / name) for name in ("chat_template.jinja", "tokenizer_config.json", "config.json")),
    ):
        change_it()
        keys.append(key_of(folder))
    assert len(set(keys)) == 5
    assert load_backend(str(folder)) is not before, "a model that is held is not taken for what the folder has now"
    (folder / "README.md").write_text("About this model.")
    (folder / "trainer_state.json").write_text("{}")
    assert key_of(folder) == keys[-1]


def test_weights_that_change_between_their_naming_and_their_reading_are_refused(base, adapter, tmp_path):
    folder = shutil.copytree(base, tmp_path / "model")
    change(adapter, base_model_name_or_path=str(folder))
    waiting = [loading.load_when_asked(str(name)) for name in (folder, adapter)]
    weights_changed(folder)
    for backend in waiting:
        with pytest.raises(UsageError, match="expected the files that it had at the start; they have changed"):
            backend.answer([REQUEST])
    loading.load_when_asked(str(adapter)).answer([REQUEST])


def test_a_moved_copy_of_a_model_is_the_same_model(base, adapter, tmp_path):
    folder = shutil.copytree(base, tmp_path / "model")
    change(adapter, base_model_name_or_path=str(folder))
    keys = key_of(folder), key_of(adapter), key_of(folder, noise=0.5)
    assert len(set(keys)) == 3
    for path in folder.iterdir():
        os.utime(path, (1, 1))
    shutil.move(folder, tmp_path / "moved"), shutil.move(adapter, tmp_path / "moved adapter")
    change(tmp_path / "moved adapter", base_model_name_or_path=str(tmp_path / "moved"))
    assert (key_of(tmp_path / "moved"), key_of(tmp_path / "moved", noise=0.5)) == keys[::2]


def test_a_model_of_the_hub_is_known_by_its_commit(base, tmp_path, monkeypatch):
    hub = tmp_path / "models--someone--small"
    (hub / "refs").mkdir(parents=True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    keys = []
    for digit in "ab":
        shutil.copytree(base, hub / "snapshots" / (digit * 40))
        (hub / "refs" / "main").write_text(digit * 40)
        assert load_backend("hf:someone/small").config["commit"] == digit * 40
        keys.append(key_of("hf:someone/small"))
    assert keys[0] != keys[1]
    with pytest.raises(UsageError, match="model 'hf:someone/else': expected one that can be loaded"):
        load_backend("hf:someone/else")


def test_what_the_embedded_model_and_its_adapters_are_called_in_records_has_not_changed(adapter, embedded, monkeypatch):
    assert load_backend("smollm2").config == {"backend": "transformers", "model": "smollm2"}
    assert set(load_backend(str(adapter)).config) == {"backend", "model", "base", "adapter"}
    monkeypatch.setattr(smollm2, "DIGEST", "of another wheel")
    changed = load_backend("smollm2").config
    assert set(changed) == {"backend", "model", "content"} and len(changed["content"]) == 16
    assert set(load_backend(str(adapter)).config) == {"backend", "model", "base", "adapter", "content"}


def test_an_adapter_says_that_its_base_has_other_weights_than_it_was_trained_on(tiny_model, tmp_path, caplog):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    base, _ = load_base(str(folder))
    save_adapter(add_lora(base), tmp_path / "adapter", {"asked": {"strategy": "chat"}})
    models.Source.of(str(tmp_path / "adapter"))
    assert caplog.text == ""
    weights_changed(folder)
    models.Source.of(str(tmp_path / "adapter"))
    assert "its base has other weights" in caplog.text
    caplog.clear()
    add_lora(load_base(str(folder))[0], adapter=tmp_path / "adapter")
    assert "its base has other weights" in caplog.text, "to train it further"


def test_a_runs_folder_stands_for_its_adapter(tiny_model, tmp_path):
    run = tmp_path / "run"
    model = add_lora(load_base(tiny_model)[0])
    run.mkdir()
    (run / "config.json").write_text('{"run": "sft"}')  # of the run, as a model has one of its own
    save_adapter(model, run / "adapter", {"asked": {"strategy": "chat", "mode": "choose"}})
    assert models.Source.of(str(run)).adapter == str(run / "adapter")
    assert settings_of(str(run)) == {"strategy": "chat", "mode": "choose"}
    assert models.Source.of(tiny_model).adapter == "", "a model's folder is a model's"


@pytest.mark.parametrize("name", ["config.json", "training.json"])
def test_a_model_with_a_pipe_in_its_folder_is_refused_and_hangs_nothing(tiny_model, tmp_path, name):
    folder = tmp_path / "theirs"
    shutil.copytree(tiny_model, folder)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(UsageError, match="regular file; it is"):
        load_backend(str(folder))
