"""Chat templates with tools: calls as JSON, and calls as marked text. All markers are special tokens."""

from gym_text_policies.backends.local.adapters import TOOLS

_TURNS = """{%- for m in messages %}
{%- if m.role == 'assistant' %}{{ '<|a|>' }}{% if m.reasoning %}{{ '<think>' + m.reasoning + '</think>' }}{% endif %}{{ m.content }}
{%- for c in m.tool_calls or [] %}CALL{%- endfor %}END
{%- elif m.role == 'tool' %}{{ '<|result|>' + m.name + ':' + m.content }}
{%- else %}{{ '<|' + m.role + '|>' + m.content }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|a|>' }}{%- endif %}"""
_TOOLS = "{%- for t in tools or [] %}{{ '<|tool|>' + (t.function | tojson) }}{%- endfor %}"


def _template(call: str, end: str) -> str:
    return (_TOOLS + _TURNS).replace("CALL", call).replace("END", end)


AS_JSON = _template(
    """{{ '<|call|>{"name": "' + c.function.name + '", "arguments": ' + (c.function.arguments | tojson) + '}<|called|>' }}""",
    "{{ '<|end|>' }}",
)
"""A call is JSON, and each turn ends by a marker; a thought can stand before it."""
AS_TEXT = _template("""{{ '<|call|>' + c.function.name + '=' + c.function.arguments.action + '<|called|>' }}""", "").replace(
    "{% if m.reasoning %}{{ '<think>' + m.reasoning + '</think>' }}{% endif %}", ""
)
"""A call is a marked text, and no marker ends a turn: what begins the next turn does."""
THINKING = AS_JSON.replace("{{ '<|a|>' }}{%- endif %}", "{{ '<|a|><think>' }}{%- endif %}")
"""As `AS_JSON`, but each generation prompt opens a thought."""
AS_SERVED = TOOLS.read_text("utf-8")
"""The template that ships: with the embedded model's turns, and calls as servers read them."""
WITHOUT_TOOLS = AS_JSON.replace(_TOOLS, "")
"""A template that writes calls but does not describe tools."""
MARKERS = (
    *("<|a|>", "<|user|>", "<|system|>", "<|tool|>", "<|result|>", "<|call|>", "<|called|>", "<|end|>"),
    *("<think>", "</think>"),
)


def give(tokenizer, template):
    """Give a tokenizer a template, and its markers as special tokens; return the tokenizer."""
    tokenizer.add_special_tokens({"additional_special_tokens": list(MARKERS)})
    tokenizer.chat_template = template
    return tokenizer
