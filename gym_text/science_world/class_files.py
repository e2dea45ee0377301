"""Two changes to compiled Java classes: add a method ``hashCode``, and refer to another class.

A class file begins with its constant pool, to whose entries the rest of the file refers by index
(https://docs.oracle.com/javase/specs/jvms/se21/html/jvms-4.html). New entries go to the pool's end, so that no index changes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
"""Bytes of a constant after its tag. A text (tag 1) states its own length; a constant of 8 bytes takes two indices."""
_POOL_START = 10
"""Bytes before the constant pool."""


def with_hash_code(data: bytes, field: str) -> bytes:
    """Return a class file with a method ``hashCode`` that returns a field of type long.

    Args:
        data: A class file without this method.
        field: The field's name.
    """
    pool = dict(_constants(data))
    count, end = _short(data, 8), max(stop for _, stop in pool.values())
    (field_index,) = (i for i, (start, _) in pool.items() if data[start] == 9 and _field_name(data, pool, i) == (field, "J"))
    texts = b"".join(b"\x01" + struct.pack(">H", len(text)) + text for text in (b"hashCode", b"()I", b"Code"))
    code = b"\x2a\xb4" + struct.pack(">H", field_index) + b"\x88\xac"  # aload_0, getfield, l2i, ireturn
    body = struct.pack(">HHI", 2, 1, len(code)) + code + struct.pack(">HH", 0, 0)  # 2 words of stack, 1 of variables
    method = struct.pack(">HHHHHI", 1, count, count + 1, 1, count + 2, len(body)) + body  # 1: public; one attribute, its code
    methods = _after_members(data, end + 8 + 2 * _short(data, end + 6))
    after = _after_members(data, methods)
    return b"".join(
        [
            *(data[:8], struct.pack(">H", count + 3), data[_POOL_START:end], texts, data[end:methods]),
            *(struct.pack(">H", _short(data, methods) + 1), data[methods + 2 : after], method, data[after:]),
        ]
    )


def with_class(data: bytes, old: str, new: str) -> bytes:
    """Return a class file with all references to the class `old` changed to `new`; both names have the form ``package/Name``."""
    pieces, copied_up_to = [], 0
    for _, (start, stop) in _constants(data):
        if data[start] == 1:
            text = data[start + 3 : stop].decode("utf-8", "surrogateescape")
            changed = new if text == old else text.replace(f"L{old};", f"L{new};")
            if changed != text:
                encoded = changed.encode("utf-8", "surrogateescape")
                pieces += [data[copied_up_to:start], b"\x01", struct.pack(">H", len(encoded)), encoded]
                copied_up_to = stop
    return b"".join([*pieces, data[copied_up_to:]])


def _constants(data: bytes) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield each constant's index, and the offsets at which the constant begins and ends."""
    index, start = 1, _POOL_START
    while index < _short(data, 8):
        tag = data[start]
        end = start + (3 + _short(data, start + 1) if tag == 1 else 1 + _SIZES[tag])
        yield index, (start, end)
        index, start = index + (2 if tag in (5, 6) else 1), end


def _field_name(data: bytes, pool: dict[int, tuple[int, int]], index: int) -> tuple[str, str]:
    """Return the name and the type of the field that a constant refers to."""
    name_and_type, _ = pool[_short(data, pool[index][0] + 3)]
    texts = [pool[_short(data, name_and_type + offset)] for offset in (1, 3)]
    name, kind = (data[start + 3 : stop].decode() for start, stop in texts)
    return name, kind


def _after_members(data: bytes, offset: int) -> int:
    """Return the offset after a list of fields or methods that begins at `offset`."""
    count, offset = _short(data, offset), offset + 2
    for _ in range(count):
        attributes, offset = _short(data, offset + 6), offset + 8
        for _ in range(attributes):
            offset += 6 + int.from_bytes(data[offset + 2 : offset + 6], "big")
    return offset


def _short(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 2], "big")
