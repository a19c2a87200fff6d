"""Removes the symbols from a program: no compiler package brings a tool for every architecture."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from armload.core.files import written_whole

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_ALLOC = 2
_NOBITS = 8
_STRTAB = 3
_INFO_LINK = 0x40
_RELOCATIONS = (4, 9)


class _Section(NamedTuple):
    """An entry of ELF's section table, in the order of the format (gABI, chapter 4)."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


def strip(program: Path, stripped: Path) -> None:
    """Write ``program``, a linked 64-bit little-endian ELF file, to ``stripped`` without symbols.

    What is loaded stays byte for byte where it is; sections that are not loaded go.
    """
    content = program.read_bytes()
    header = list(_HEADER.unpack_from(content))
    segments_at, sections_at = header[5], header[6]
    segment_count, section_count, names_index = header[10], header[12], header[13]
    sections = [
        _Section(*_SECTION.unpack_from(content, sections_at + index * _SECTION.size))
        for index in range(section_count)
    ]
    names = sections[names_index]
    kept = [0, *(index for index, each in enumerate(sections) if each.flags & _ALLOC)]
    ends = [_segment_end(content, segments_at, index) for index in range(segment_count)]
    ends += [
        each.offset + each.size for each in sections if each.flags & _ALLOC and each.kind != _NOBITS
    ]
    body = content[: max(ends)]
    table, strings = _tables(content, sections, kept, names, len(body))
    strings_end = len(body) + len(strings)
    padding = -strings_end % 8
    header[6], header[12], header[13] = strings_end + padding, len(kept) + 1, len(kept)
    with written_whole(stripped) as beside:
        beside.write_bytes(
            _HEADER.pack(*header) + body[_HEADER.size :] + strings + bytes(padding) + table
        )
    stripped.chmod(0o755)


def _segment_end(content: bytes, segments_at: int, index: int) -> int:
    _, _, offset, _, _, file_size, _, _ = _SEGMENT.unpack_from(
        content, segments_at + index * _SEGMENT.size
    )
    end: int = offset + file_size
    return max(end, segments_at + (index + 1) * _SEGMENT.size)


def _tables(
    content: bytes, sections: Sequence[_Section], kept: list[int], names: _Section, at: int
) -> tuple[bytes, bytes]:
    """Return the new section table, and the names that it refers to, which lie at ``at``."""
    strings = bytearray(b"\0")
    table = bytearray()
    for index in kept:
        section = sections[index]
        start = names.offset + section.name
        name = content[start : content.index(b"\0", start)]
        table += _SECTION.pack(
            *section._replace(
                name=len(strings) if name else 0,
                link=kept.index(section.link) if section.link in kept else 0,
                info=_renumbered(section, kept),
            )
        )
        strings += name + b"\0" if name else b""
    own_name = len(strings)
    strings += b".shstrtab\0"
    table += _SECTION.pack(own_name, _STRTAB, 0, 0, at, len(strings), 0, 0, 1, 0)
    return bytes(table), bytes(strings)


def _renumbered(section: _Section, kept: list[int]) -> int:
    """Return a section's ``info``: of relocations the number of a section, of others a count."""
    if section.kind not in _RELOCATIONS and not section.flags & _INFO_LINK:
        return section.info
    return kept.index(section.info) if section.info in kept else 0
