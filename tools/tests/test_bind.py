"""Copies of TensorFlow's libraries that load faster hold the same when they are loaded."""

import os
import pathlib
import platform
import re
import subprocess
import sys

import numpy as np
import pytest
from helpers import ROOT

from loader import bind

TENSORFLOW = ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")

FIRST = """
#include <stdio.h>
extern int own, ours, theirs, many[4];
int own = 1, ours = 2, many[4] = {3, 4, 5, 6};
__thread int each = 7;
static int seven(void) { return 7; }
static int (*choose(void))(void) { return seven; }
int indirect(void) __attribute__((ifunc("choose")));
int call(void) { return 8; }
int also(void) { return 9; }
__attribute__((weak)) int weak(void) { return 10; }
int *const to[] = {&own, &ours, &theirs, &many[2]};
int (*const calls[])(void) = {call, also, weak, indirect};
void say(void) {
	for (int i = 0; i < 4; i++) printf("%d %d\\n", *to[i], calls[i]());
	printf("%d %d %d %d %d\\n", call(), also(), weak(), indirect(), each);
}
"""

SECOND = """
extern int ours, theirs;
int ours = 20, theirs = 30;
int also(void) { return 90; }
int *const second[] = {&ours, &theirs};
"""

PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
int also(void) { return 900; }
int main(int n, char **args) {
	void *library = dlopen(args[1], RTLD_LAZY | RTLD_GLOBAL);
	if (!library) { puts(dlerror()); return 1; }
	((void (*)(void))dlsym(library, "say"))();
	int *const *second = dlsym(library, "second");
	printf("%d %d\\n", *second[0], *second[1]);
	return 0;
}
"""

SLOTS = """
import ctypes, struct, sys
import numpy as np

folder, out, *libraries = sys.argv[1:]
ctypes.CDLL(folder + "/" + libraries[0], mode=ctypes.RTLD_GLOBAL)
bases = {}
for line in open("/proc/self/maps"):
    words = line.split()
    if len(words) > 5:
        bases.setdefault(words[5], int(words[0].split("-")[0], 16))
modules = []
for path, base in bases.items():
    if path.startswith("/") and ctypes.string_at(base, 4) == b"\\x7fELF":
        head = ctypes.string_at(base, 64)
        headers, = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        end = 0
        for i in range(count):
            kind, _, _, address, _, _, length, _ = struct.unpack(
                "<IIQQQQQQ", ctypes.string_at(base + headers + i * size, 56))
            end = max(end, address + length if kind == 1 else 0)
        modules.append((path.rsplit("/", 1)[1], base, end))
held = {}
for name in libraries:
    base = next(base for module, base, _ in modules if module == name)
    offsets = np.load(out + "." + name + ".npy")
    view = np.frombuffer((ctypes.c_char * int(offsets.max() + 8)).from_address(base), np.uint8)
    places = offsets.astype(np.int64)[:, None] + np.arange(8)
    values = view[places].view(np.uint64)[:, 0]
    module = np.full(len(values), -1)
    for i, (_, start, length) in enumerate(sorted(modules)):
        inside = (values >= start) & (values < start + length)
        module[inside] = i
        values[inside] -= np.uint64(start)
    values[module < 0] = 0  # not in a library, such as memory that was allocated
    held[name], held[name + " module"] = values, module
np.savez(out + ".npz", **held)
"""
"""Loads libraries of a folder, and says what is in the places that the dynamic linker filled in."""


def built(folder: pathlib.Path, name: str, source: str, *flags: str) -> pathlib.Path:
    (folder / f"{name}.c").write_text(source)
    compiler = os.environ.get("CC", "cc").split()
    command = [*compiler, "-w", "-fPIC", f"{name}.c", "-o", name, *flags]
    subprocess.run(command, cwd=folder, check=True)
    return folder / name


def by_name(library: pathlib.Path) -> set[str]:
    """The names that the linker looks up when it loads a library."""
    said = subprocess.run(["readelf", "-rW", library], capture_output=True, text=True, check=True)
    return set(re.findall(r"^\S+ +\S+ +R_X86_64_\w+ +\S+ (\w+)", said.stdout, re.MULTILINE))


@pytest.mark.parametrize("hash_style", ["gnu", "both"])
def test_programs_see_the_same(tmp_path, hash_style):
    plain, copies = tmp_path / "plain", tmp_path / "copies"
    plain.mkdir()
    copies.mkdir()
    flags = ("-shared", "-Wl,-z,now", f"-Wl,--hash-style={hash_style}", "-Wl,-rpath,$ORIGIN")
    built(plain, "libsecond.so", SECOND, *flags)
    built(plain, "libfirst.so", FIRST, *flags, "-L.", "-Wl,--no-as-needed", "-l:libsecond.so")
    program = built(tmp_path, "program", PROGRAM, "-rdynamic", "-ldl")
    names = ["libfirst.so", "libsecond.so"]
    assert bind.main([str(plain), str(copies), *names]) == 0
    assert sorted(path.name for path in copies.iterdir()) == names
    said = [
        subprocess.run([program, folder / names[0]], capture_output=True, text=True, check=True)
        for folder in (plain, copies)
    ]
    said = [run.stdout.splitlines() for run in said]
    assert said[0] == said[1]
    # also() is the program's, which a copy does not know: it is the linker's as well.
    assert said[0][:4] == ["1 8", "2 900", "30 10", "5 7"]
    assert said[0][5] == "2 30"
    own = {"own", "many", "call", "weak", "to", "calls"}
    assert own <= by_name(plain / names[0])
    left = by_name(copies / names[0])
    assert not own & left and {"ours", "theirs", "also", "each"} <= left
    second = by_name(copies / names[1])
    assert "ours" in second and "theirs" not in second


def test_tensorflow_holds_the_same(tmp_path):
    """All addresses in the copies that the set-up has made are those in the wheel's libraries."""
    import tensorflow as tf

    flavour = (ROOT / ".tf" / "stamp").read_text().split()[0]
    if flavour != "cpu" or platform.machine() != "x86_64":
        pytest.skip(f"there are copies for CPUs (x86-64) only, not for {flavour}")
    plain, copies = pathlib.Path(tf.__file__).parent, ROOT / ".tf" / "lib"
    assert not any((copies / name).is_symlink() for name in TENSORFLOW)
    offsets = {}
    for name in TENSORFLOW:
        with bind.opened(plain / name) as library:
            tables = [(bind.RELA, bind.RELASZ), (bind.JMPREL, bind.PLTRELSZ)]
            places = np.concatenate([library.relocations(*t)["offset"] for t in tables])
        offsets[name] = places
    held, lookups = [], []
    for folder in (plain, copies):
        out = str(tmp_path / folder.name)
        for name, places in offsets.items():
            np.save(f"{out}.{name}.npy", places)
        env = {**os.environ, "LD_DEBUG": "statistics"}
        command = [sys.executable, "-c", SLOTS, str(folder), out, *TENSORFLOW]
        run = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        held.append(np.load(out + ".npz"))
        lookups.append(int(re.findall(r"final number of relocations: (\d+)", run.stderr)[-1]))
    for name in held[0].files:
        assert np.array_equal(held[0][name], held[1][name]), name
        assert len(held[0][name]) > 50_000
        if name.endswith("module"):
            assert np.mean(held[0][name] < 0) < 0.001
    assert lookups[1] < lookups[0] / 4


def test_what_is_no_library_is_refused(tmp_path, capsys):
    (tmp_path / "text").write_text("text" * 100)
    (tmp_path / "short").write_bytes((ROOT / ".venv" / "bin" / "python").read_bytes()[:4000])
    (tmp_path / "out").mkdir()
    for name in ("text", "short", "missing"):
        assert bind.main([str(tmp_path), str(tmp_path / "out"), name]) == 1
        assert name in capsys.readouterr().err
    assert not list((tmp_path / "out").iterdir())
