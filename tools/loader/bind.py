"""Copies TensorFlow's libraries so that they load in less than half of the time.

Usage: python bind.py FOLDER TARGET LIBRARY...

When the dynamic linker loads TensorFlow, it fills in some 420,000 addresses, and looks most of them
up by name, in tables of 280,000 names. Two thirds are addresses in the library itself. In a copy
those are written down as distances from the library's own beginning, which the linker only adds.
The result is the same: where another library might come first, it still looks the name up.

    types of relocations     System V ABI, AMD64 supplement, table 4.9
    tables and their tags    System V gABI, chapters 4 and 5; DT_GNU_HASH: glibc, elf/dl-lookup.c
    DT_RELACOUNT             glibc, elf/do-rel.h: so many entries at the beginning are relative

It copies each LIBRARY of FOLDER to TARGET. Those that are used together are given together. It
knows ELF files for x86-64; for others the exit code is 1, with a sentence.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator

import numpy as np

X86_64 = 62
"""EM_X86_64, the machine in an ELF header."""

LOAD, DYNAMIC = 1, 2
"""Types of program headers: PT_LOAD, PT_DYNAMIC."""

PLTRELSZ, STRTAB, SYMTAB, RELA, RELASZ, JMPREL, FLAGS = 2, 5, 6, 7, 8, 23, 30
GNU_HASH, RELACOUNT, FLAGS_1 = 0x6FFFFEF5, 0x6FFFFFF9, 0x6FFFFFFB
"""Tags of the dynamic section: DT_PLTRELSZ and so on."""

BIND_NOW, NOW = 0x8, 0x1
"""DF_BIND_NOW in FLAGS, DF_1_NOW in FLAGS_1: calls are bound when the library is loaded."""

R_64, R_GLOB_DAT, R_JUMP_SLOT, R_RELATIVE = 1, 6, 7, 8
"""Types of relocations: R_X86_64_64 and so on. That one adds its addend to its symbol's address."""

GLOBAL, WEAK = 1, 2
"""Bindings of symbols. STB_GNU_UNIQUE is another one: the first library that has it wins."""

NOTYPE, OBJECT, FUNCTION = 0, 1, 2
"""Types of symbols. STT_GNU_IFUNC and STT_TLS are others: their values are no addresses."""

RESERVED = 0xFF00
"""SHN_LORESERVE: from here on a section's number has another meaning, and 0 is undefined."""

SYMBOL = np.dtype(
    [
        ("name", "<u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("section", "<u2"),
        ("value", "<u8"),
        ("size", "<u8"),
    ]
)
"""Elf64_Sym."""

RELOCATION = np.dtype([("offset", "<u8"), ("info", "<u8"), ("addend", "<i8")])
"""Elf64_Rela."""


class Failure(Exception):
    """What is wrong, in a sentence for the user."""


class Library:
    """A shared library, as the dynamic linker sees it.

    Attributes:
        data: the file's content.
        tags: the values of the dynamic section by tag.
        places: where in the file they are.
        symbols: the dynamic symbols, of dtype SYMBOL.
    """

    def __init__(self, data: mmap.mmap, path: pathlib.Path) -> None:
        """Reads the tables of a file with this content; the path is for errors."""
        self.data = data
        try:
            self._read()
        except (struct.error, ValueError, IndexError, KeyError, StopIteration) as e:
            raise Failure(f"{path} is no library that can be bound: {e!r}") from e

    def _read(self) -> None:
        magic, machine, headers, size, count = struct.unpack_from("<6s12xH12xQ14xHH", self.data)
        if magic != b"\x7fELF\x02\x01" or machine != X86_64:
            raise ValueError("expected an ELF file for x86-64")
        self._segments = []
        for i in range(count):
            kind, _, offset, address, _, length, _, _ = struct.unpack_from(
                "<IIQQQQQQ", self.data, headers + i * size
            )
            if kind == LOAD:
                self._segments.append((offset, address, length))
            elif kind == DYNAMIC:
                first, last = offset, offset + length
        self.tags, self.places = {}, {}
        for place in range(first, last, 16):
            tag, value = struct.unpack_from("<qQ", self.data, place)
            if tag == 0:
                break
            self.tags[tag], self.places[tag] = value, place
        self.symbols = self._array(SYMBOL, self.place(self.tags[SYMTAB]), self._symbols())

    def _array(self, dtype: np.dtype, place: int, count: int) -> np.ndarray:
        # A copy: a view would keep the file mapped.
        return np.frombuffer(self.data, dtype, count, place).copy()

    def _symbols(self) -> int:
        """The number of dynamic symbols, of which the hash table has the last ones."""
        table = self.place(self.tags[GNU_HASH])
        buckets, first, words, _ = struct.unpack_from("<IIII", self.data, table)
        table += 16 + 8 * words
        last = int(self._array(np.dtype("<u4"), table, buckets).max())
        if last < first:
            return first
        chain = table + 4 * buckets
        while not struct.unpack_from("<I", self.data, chain + 4 * (last - first))[0] & 1:
            last += 1
        return last + 1

    def place(self, address: int) -> int:
        """Where in the file the byte with this address is."""
        return next(
            offset + address - start
            for offset, start, length in self._segments
            if start <= address < start + length
        )

    def names(self) -> list[bytes]:
        """The names of the symbols."""
        strings = self.place(self.tags[STRTAB])
        starts = (strings + self.symbols["name"].astype(np.int64)).tolist()
        return [self.data[start : self.data.find(b"\0", start)] for start in starts]

    def relocations(self, table: int, size: int) -> np.ndarray:
        """The relocations, of dtype RELOCATION, of the table with these two tags."""
        if table not in self.tags:
            return np.empty(0, RELOCATION)
        count = self.tags[size] // RELOCATION.itemsize
        return self._array(RELOCATION, self.place(self.tags[table]), count)

    def write(self, table: int, relocations: np.ndarray) -> None:
        """Writes a table of relocations over the one that is there, of the same size."""
        if len(relocations) > 0:
            place = self.place(self.tags[table])
            self.data[place : place + relocations.nbytes] = relocations.tobytes()

    def own(self, others: set[bytes]) -> np.ndarray:
        """Which symbols have their address here whatever else is loaded; others has other names."""
        binding, kind = self.symbols["info"] >> 4, self.symbols["info"] & 15
        here = (self.symbols["section"] > 0) & (self.symbols["section"] < RESERVED)
        here &= np.isin(binding, (GLOBAL, WEAK)) & np.isin(kind, (NOTYPE, OBJECT, FUNCTION))
        return here & np.array([name not in others for name in self.names()], bool)

    def bind(self, others: set[bytes]) -> None:
        """Makes relocations by names of this library, and of no other, relative ones."""
        own = self.own(others)
        entries = self._relative(self.relocations(RELA, RELASZ), own)
        relative = entries["info"] == R_RELATIVE
        order = np.argsort(entries["offset"][relative], kind="stable")
        self.write(RELA, np.concatenate([entries[relative][order], entries[~relative]]))
        if RELACOUNT in self.tags:
            struct.pack_into("<Q", self.data, self.places[RELACOUNT] + 8, int(relative.sum()))
        # Calls that are bound when they are made first are no relocations until then.
        if self.tags.get(FLAGS, 0) & BIND_NOW or self.tags.get(FLAGS_1, 0) & NOW:
            self.write(JMPREL, self._relative(self.relocations(JMPREL, PLTRELSZ), own))

    def _relative(self, entries: np.ndarray, own: np.ndarray) -> np.ndarray:
        kind, symbol = entries["info"] & 0xFFFFFFFF, (entries["info"] >> 32).astype(np.int64)
        ours = np.isin(kind, (R_64, R_GLOB_DAT, R_JUMP_SLOT)) & own[symbol]
        value = self.symbols["value"].astype(np.int64)[symbol]
        address = np.where(kind == R_64, value + entries["addend"], value)
        entries["addend"] = np.where(ours, address, entries["addend"])
        entries["info"] = np.where(ours, np.uint64(R_RELATIVE), entries["info"])
        return entries


@contextlib.contextmanager
def opened(path: pathlib.Path, change: bool = False) -> Iterator[Library]:
    """A library, whose file can be changed or not."""
    with (
        path.open("r+b" if change else "rb") as file,
        mmap.mmap(
            file.fileno(), 0, access=mmap.ACCESS_WRITE if change else mmap.ACCESS_READ
        ) as data,
    ):
        yield Library(data, path)


def defined(path: pathlib.Path) -> set[bytes]:
    """The names that a library defines."""
    with opened(path) as library:
        here = library.symbols["section"] > 0
        return {name for name, has in zip(library.names(), here) if has}


def needed(path: pathlib.Path) -> set[pathlib.Path]:
    """The libraries that the dynamic linker loads with a library."""
    said = subprocess.run(["ldd", path], capture_output=True, text=True, check=True)
    return {pathlib.Path(p) for p in re.findall(r"(/\S+) \(0x", said.stdout)}


def bind(sources: list[pathlib.Path], target: pathlib.Path) -> None:
    """Writes bound copies of libraries that are used together to a folder."""
    together = set(sources).union(*map(needed, sources))
    names = {path.resolve(): defined(path) for path in together}
    for source in sources:
        others = set().union(*(n for path, n in names.items() if path != source.resolve()))
        part = target / f".{source.name}.part-{os.getpid()}"
        try:
            shutil.copyfile(source, part)
            with opened(part, change=True) as library:
                library.bind(others)
            part.chmod(source.stat().st_mode)
            part.replace(target / source.name)
        finally:
            part.unlink(missing_ok=True)


def main(argv: list[str]) -> int:
    """Binds the libraries of a command line and returns the exit code."""
    folder, target, *libraries = argv
    try:
        bind([pathlib.Path(folder, name) for name in libraries], pathlib.Path(target))
    except subprocess.CalledProcessError as e:
        print(f"bind: {' '.join(map(str, e.cmd))}: exit code {e.returncode}", file=sys.stderr)
        return 1
    except (Failure, OSError) as e:
        print(f"bind: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
