"""From messages to tokens, the same for play and for training. The words of a game never become special tokens."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gym_text.errors import PolicyError, UsageError
from gym_text_policies.backends.chat_format import PLAIN, PROBE, AnswerStart
from gym_text_policies.backends.local.rendering import format_of, rendered, special_tokens, written_tokens
from gym_text_policies.records import Message

_DROPPED_TOGETHER = 8
"""Turns dropped at once from a chat that is too long. If one turn were dropped at each step, all that stays would be read again at
each step."""


def prompt_tokens(tokenizer: Any, messages: Sequence[Message], answer_start: AnswerStart = PLAIN, *, behind: str = "") -> list[int]:
    """Return the tokens of a chat, up to where the model's answer begins.

    Special tokens of the tokenizer mark the roles. The template may write more markers, such as ``</think>``, that are single
    tokens but not flagged as special. If a message spells one of them (a game says ``<|im_start|>``), it is encoded as plain
    characters, so that a game cannot begin or end a turn or a thought. Markers that are not single tokens, such as Llama 2's
    ``[INST]``, are plain characters in the template, too; they cannot be told from a game's words.

    Args:
        tokenizer: One of transformers with a chat template.
        messages: The chat.
        answer_start: Where the answer begins, or the thought before it; see `ChatFormat.answer_start`.
        behind: A text that the chat contains once; the tokens are those of the part behind it.
    """

    def write(hide: Callable[[str], str]) -> str:
        chat = [{key: hide(value) if key in _TEXTS else value for key, value in message.items()} for message in messages]
        text = rendered(tokenizer, chat, answer_start)
        return text[text.index(behind) + len(behind) :]

    texts = [message[field] for message in messages for field in _TEXTS if field in message]
    calls = "tools" in dict(answer_start.arguments)  # a call begins with a marker
    return tokens_around(tokenizer, texts, write, before_word=bool(answer_start.opening or answer_start.arguments) and not calls)


def tokens_around(
    tokenizer: Any, texts: Sequence[str], write: Callable[[Callable[[str], str]], str], *, before_word: bool
) -> list[int]:
    """Return the tokens of what a chat template writes around texts, none of which becomes a special token.

    `write` returns what the template writes, with each text passed through a function. On `before_word` see `template_tokens`.
    """
    special = sorted({*special_tokens(tokenizer), *written_tokens(tokenizer)}, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, special)) or r"(?!)")
    # some tokenizers turn capitals into small letters, or a full-width "<" into the usual one, before they look for tokens
    normaliser = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    read = [*texts, *(str(normaliser.normalize_str(text)) for text in texts if normaliser)]
    if not any(pattern.search(text) for text in read):
        return template_tokens(tokenizer, write(str), before_word=before_word)
    # each special token in a text is replaced by a placeholder: those left in the rendered chat are the template's
    sign = _unused_character("".join(texts))

    def hidden(text: str) -> str:
        return pattern.sub(lambda match: f"{sign}{special.index(match[0])}{sign}", text)

    tokens: list[int] = []
    for index, part in enumerate(re.split(f"({pattern.pattern})", write(hidden))):
        if index % 2:
            tokens.append(tokenizer.convert_tokens_to_ids(part))
        elif part.isspace() and before_word:
            tokens += template_tokens(tokenizer, part)
        elif part:
            tokens += text_tokens(tokenizer, re.sub(f"{sign}(\\d+){sign}", lambda match: special[int(match[1])], part))
    return tokens


_TEXTS = ("content", "reasoning", "call")
"""Parts of a message whose words never become special tokens."""


def text_tokens(tokenizer: Any, text: str) -> list[int]:
    """Return the tokens of a text by itself, such as an action's name. None of them is a marker of the chat template."""
    # in any text the tokenizer recognises markers that are not flagged as special: so each is cut in two, tokenised apart
    written = written_tokens(tokenizer)
    within = "|".join(f"(?<={re.escape(token[0])})(?={re.escape(token[1:])})" for token in written)
    tokens = _tokens_apart(tokenizer, re.split(within, text) if within else [text])
    if not {tokenizer.convert_tokens_to_ids(token) for token in written}.isdisjoint(tokens):
        # the tokenizer's normaliser has turned other characters into a marker: each character is tokenised by itself
        return _tokens_apart(tokenizer, list(text))
    return tokens


def template_tokens(tokenizer: Any, text: str, *, before_word: bool = True) -> list[int]:
    """Return the tokens of a text that the chat template writes, such as what closes a thought. Its markers are recognised.

    With `before_word` they are the tokens that the text has before a word: some tokenizers, such as GPT-2's, make a token of its
    own of the last space before a word.
    """
    if before_word and len(text) - len(text.rstrip()) > 1:
        longer, word = _tokens_of(tokenizer, text + _WORD), _tokens_of(tokenizer, _WORD)
        if longer[-len(word) :] == word:
            return longer[: -len(word)]
    return _tokens_of(tokenizer, text)


_WORD = "a"


def _tokens_of(tokenizer: Any, text: str) -> list[int]:
    """Return the tokens of a text. Special tokens that it spells are recognised."""
    tokens: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return tokens


def _tokens_apart(tokenizer: Any, parts: Iterable[str]) -> list[int]:
    """Return the tokens of several texts, each tokenised by itself. Special tokens are read as text."""
    return [
        number for part in parts for number in tokenizer(part, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    ]


def continued_tokens(
    tokenizer: Any, read: Sequence[int], messages: Sequence[Message], answer_start: AnswerStart = PLAIN
) -> list[int]:
    """Return the tokens of a chat whose start the model has read and generated, up to where the model's next answer begins.

    If the model's words are tokenised again, the tokens may differ from those that it generated: it may have used other tokens for
    a word, generated special tokens, or been cut. So the generated tokens are kept. The tokens from the end of the model's turn on
    do not depend on its words, as they begin with a special token. If the template writes earlier turns in another way than the
    last, as those do that leave out earlier thoughts, or if the turn is a call of a tool, the whole chat is tokenised anew.

    Args:
        tokenizer: One of transformers with a chat template.
        read: The tokens of the chat up to the end of the model's last message, with or without the end of turn.
        messages: The whole chat.
        answer_start: See `prompt_tokens`.
    """
    last = max(index for index, message in enumerate(messages) if message["role"] == "assistant")
    thought = "reasoning" in messages[last]
    another = "call" in messages[last] or (answer_start.thinks and not thought)
    if another or not format_of(tokenizer).continues(answer_start, thought=thought):
        return prompt_tokens(tokenizer, messages, answer_start)
    sign = _unused_character("".join(text for message in messages for text in message.values()))
    marked = [*messages[:last], {**messages[last], "content": sign}, *messages[last + 1 :]]
    following = prompt_tokens(tokenizer, marked, answer_start, behind=sign)
    return [*read, *(following[1:] if read[-1] == following[0] else following)]


def fitting_tokens(
    tokenizer: Any,
    messages: Sequence[Message],
    max_tokens: int,
    name: str,
    *,
    read: Sequence[int] = (),
    answer_start: AnswerStart = PLAIN,
) -> tuple[list[int], int]:
    """Return the tokens of a chat, and the number of turns dropped: if the chat is too long, its oldest turns are left out.

    The system message and the last question always stay. A turn is a question, or a tool's answer, with what the model says to it.

    Args:
        tokenizer: One of transformers with a chat template.
        messages: The chat.
        max_tokens: Most tokens.
        name: The model's name, for the error.
        read: The tokens of the chat's start, if they are known; see `continued_tokens`. If the chat is too long, it is tokenised
            anew without them.
        answer_start: See `prompt_tokens`.

    Raises:
        PolicyError: If the messages that have to stay are too long.
    """
    tokens = continued_tokens(tokenizer, read, messages, answer_start) if read else prompt_tokens(tokenizer, messages, answer_start)
    if len(tokens) <= max_tokens:
        return tokens, 0
    turns = [index for index, message in enumerate(messages) if message["role"] in ("user", "tool")]

    def tokens_without(dropped: int) -> list[int]:
        first = {**messages[turns[dropped]], "role": "user"}  # a tool's answer whose call is left out is a question
        return prompt_tokens(tokenizer, [*messages[: turns[0]], first, *messages[turns[dropped] + 1 :]], answer_start)

    needed = bisect.bisect_left(range(len(turns)), True, key=lambda dropped: len(tokens_without(dropped)) <= max_tokens)
    if needed == len(turns):
        least = len(tokens_without(needed - 1)) if turns else len(tokens)
        got = f"expected a prompt of at most {max_tokens} tokens; got {least} without any earlier turn"
        raise PolicyError(f"{name}: {got}. Show fewer examples or a shorter text, or let it think and answer in fewer tokens.")
    together = -(-needed // _DROPPED_TOGETHER) * _DROPPED_TOGETHER
    dropped = max(needed, min(together, len(turns) - 3))
    return tokens_without(dropped), dropped


def check_tokenizer(tokenizer: Any, why: str) -> None:
    """Check that a tokenizer can write chats and end answers, before a model's weights are read.

    Args:
        tokenizer: One of transformers.
        why: The beginning of the error.

    Raises:
        UsageError: If there is no chat template that writes a conversation, or no end of turn.
    """
    if not tokenizer.chat_template:
        raise UsageError(f"{why} expected one with a chat template; it has none. Take its instruct version.")
    try:
        text = rendered(tokenizer, PROBE)
    except PolicyError as error:
        raise UsageError(f"{why} {error} It cannot write a conversation; take another version of the model.") from error
    lost = [message["role"] for message in PROBE if message["content"] not in text]
    if lost:
        raise UsageError(f"{why} expected a chat template that writes all messages; it leaves out that of the {lost[0]}.")
    for argument in format_of(tokenizer).arguments:
        if not re.search(rf"\b{re.escape(argument)}\b", str(tokenizer.chat_template)):
            raise UsageError(f"{why} template_kwargs: expected arguments that the chat template names; got {argument!r}.")
    try:
        format_of(tokenizer).answer_start()
        end_of_turn(tokenizer)
    except UsageError as error:
        raise UsageError(f"{why} {error}") from error


def end_of_turn(tokenizer: Any, arguments: Mapping[str, Any] | None = None) -> int:
    """Return the token that ends an answer: the one that the chat template writes behind an answer, or that the user has set.

    The tokenizer's ``eos_token`` often is another: Gemma's template ends a turn by ``<end_of_turn>``.

    Args:
        tokenizer: One of transformers with a chat template.
        arguments: The user's template arguments; None: see `format_of`.

    Raises:
        UsageError: If no single token ends a turn.
    """
    chats = format_of(tokenizer, arguments)
    behind, eos = chats.end.lstrip(), getattr(tokenizer, "eos_token", None)
    special = [text for text in special_tokens(tokenizer) if text and behind.startswith(text)]
    found = template_tokens(tokenizer, chats.end_of_turn or max(special, key=len, default=chats.end_marker))
    if len(found) == 1 and (special or chats.end_of_turn or chats.end_marker[:1] in tuple("<[")):
        return int(found[0])
    if chats.end_of_turn:
        raise UsageError(f"end_of_turn: expected the text of one token; {chats.end_of_turn!r} is {len(found)} tokens.")
    if eos and str(eos) in behind:
        return int(tokenizer.eos_token_id)
    raise UsageError(
        f"expected a chat template with a special token behind an answer to end the turn; got {behind[:40]!r}. Set end_of_turn "
        "to the token's text."
    )


def stops(tokenizer: Any, ends: int | Iterable[int] | None = (), answer_start: AnswerStart | None = None) -> frozenset[int]:
    """Return the tokens at which a model has stopped answering: its end of turn, and what ends its texts otherwise.

    Args:
        tokenizer: One of transformers with a chat template.
        ends: ``generation_config.eos_token_id`` of the model.
        answer_start: If given, the tokens are those that stop a thought there. Tokens that close the thought are none of them.
    """
    others = [ends] if isinstance(ends, int) else list(ends or ())
    eos = tokenizer.eos_token_id
    found = {end_of_turn(tokenizer), *others, *(() if eos is None else (eos,))}
    return frozenset(found) - frozenset(template_tokens(tokenizer, answer_start.thought_close) if answer_start else ())


def _unused_character(text: str) -> str:
    """Return a character of Unicode's private use area that is not in a text."""
    return next(chr(code) for code in range(0xE000, 0xF8FF) if chr(code) not in text)
