"""Changes to compiled Java classes: a method more, or another class in place of one that is referred to.

A class file begins with its pool of constants, which everything after it names by number
(https://docs.oracle.com/javase/specs/jvms/se21/html/jvms-4.html). New constants go to the pool's end, so no number changes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
"""Bytes of a constant after its tag; a text (tag 1) has its own length, and the two of 8 bytes take two numbers."""
_POOL = 10
"""Bytes before the pool."""


def with_hash_code(data: bytes, field: str) -> bytes:
    """Return a class whose objects' ``hashCode`` is a field of theirs, of type long.

    Args:
        data: A class file without such a method.
        field: The field's name.
    """
    pool = dict(_constants(data))
    count, end = _short(data, 8), max(stop for _, stop in pool.values())
    (number,) = (one for one, (start, _) in pool.items() if data[start] == 9 and _field_name(data, pool, one) == (field, "J"))
    texts = b"".join(b"\x01" + struct.pack(">H", len(text)) + text for text in (b"hashCode", b"()I", b"Code"))
    code = b"\x2a\xb4" + struct.pack(">H", number) + b"\x88\xac"  # aload_0, getfield, l2i, ireturn
    body = struct.pack(">HHI", 2, 1, len(code)) + code + struct.pack(">HH", 0, 0)  # 2 words of stack, 1 of variables
    method = struct.pack(">HHHHHI", 1, count, count + 1, 1, count + 2, len(body)) + body  # 1: public; one attribute, its code
    methods = _after_members(data, end + 8 + 2 * _short(data, end + 6))
    after = _after_members(data, methods)
    return b"".join(
        [
            *(data[:8], struct.pack(">H", count + 3), data[_POOL:end], texts, data[end:methods]),
            *(struct.pack(">H", _short(data, methods) + 1), data[methods + 2 : after], method, data[after:]),
        ]
    )


def with_class(data: bytes, old: str, new: str) -> bytes:
    """Return a class that refers to the class `new` wherever it has referred to `old`; both are named as ``package/Name``."""
    pieces, done = [], 0
    for _, (start, stop) in _constants(data):
        if data[start] == 1:
            text = data[start + 3 : stop].decode("utf-8", "surrogateescape")
            changed = new if text == old else text.replace(f"L{old};", f"L{new};")
            if changed != text:
                encoded = changed.encode("utf-8", "surrogateescape")
                pieces += [data[done:start], b"\x01", struct.pack(">H", len(encoded)), encoded]
                done = stop
    return b"".join([*pieces, data[done:]])


def _constants(data: bytes) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield the constants: number, and where it begins and ends."""
    number, place = 1, _POOL
    while number < _short(data, 8):
        tag = data[place]
        end = place + (3 + _short(data, place + 1) if tag == 1 else 1 + _SIZES[tag])
        yield number, (place, end)
        number, place = number + (2 if tag in (5, 6) else 1), end


def _field_name(data: bytes, pool: dict[int, tuple[int, int]], number: int) -> tuple[str, str]:
    """Return the name and the type of the field that a constant refers to."""
    pair, _ = pool[_short(data, pool[number][0] + 3)]
    places = [pool[_short(data, pair + offset)] for offset in (1, 3)]
    name, kind = (data[start + 3 : stop].decode() for start, stop in places)
    return name, kind


def _after_members(data: bytes, place: int) -> int:
    """Return where a list of fields or of methods, which begins at `place`, ends."""
    count, place = _short(data, place), place + 2
    for _ in range(count):
        attributes, place = _short(data, place + 6), place + 8
        for _ in range(attributes):
            place += 6 + int.from_bytes(data[place + 2 : place + 6], "big")
    return place


def _short(data: bytes, place: int) -> int:
    return int.from_bytes(data[place : place + 2], "big")
