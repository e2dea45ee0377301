"""Chat templates with tools: calls as JSON, and calls as marked text. All markers are special tokens."""

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
AS_SERVED = """{%- if tools %}{{ '<|im_start|>system\n# Tools\n\nCall a function inside <tool_call></tool_call>:\n<tools>' }}
{%- for tool in tools %}{{ '\n' + (tool | tojson) }}{%- endfor %}
{{- '\n</tools>\n<tool_call>\n{"name": <name>, "arguments": <object>}\n</tool_call><|im_end|>\n' }}{%- endif %}
{%- for m in messages %}
{%- if m.role == 'assistant' and m.tool_calls %}{{ '<|im_start|>assistant\n' }}
{%- for c in m.tool_calls %}
{{- '<tool_call>\n{"name": "' + c.function.name + '", "arguments": ' }}
{{- c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}{{ '}\n</tool_call>' }}
{%- endfor %}{{ '<|im_end|>\n' }}
{%- elif m.role == 'tool' %}{{ '<|im_start|>user\n<tool_response>\n' + m.content + '\n</tool_response><|im_end|>\n' }}
{%- else %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"""
"""With the embedded model's own turns, for a server that reads calls between ``<tool_call>`` and ``</tool_call>``."""
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
