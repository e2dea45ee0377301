"""Keys and passwords are kept out of all that is written."""

from gym_text_policies.redaction import without_secrets

PLANTED = "sk-planted-0123456789"


def test_a_text_that_only_looks_like_an_address_is_kept():
    for text in ("http://[a@b", "see http://a.b/c or write to me@x.y", "://@"):
        assert without_secrets(text).endswith(text.rpartition("@")[2])


def test_secrets_are_not_kept(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", PLANTED)
    data = {"base_url": "https://me:pass@host:80/v1", "extra": {"Authorization": "x y"}, "max_tokens": 5, "note": f"a {PLANTED}"}
    kept = without_secrets(data)
    assert kept == {
        "base_url": "https://host:80/v1",
        "extra": {"Authorization": "(not kept)"},
        "max_tokens": 5,
        "note": "a (not kept)",
    }
