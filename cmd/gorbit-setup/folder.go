package main

import (
	"context"
	"crypto/sha256"
	"debug/elf"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// loader has what programs are linked with in the place of the library, for x86-64.
//
//go:embed loader
var loader embed.FS

// folder is what builds need of one TensorFlow:
//
//	include/    the headers; a link to those of a Python
//	lib/        libtensorflow.a, to link with; of a wheel also the libraries
type folder struct {
	path      string
	libraries string // the folder of the libraries, where programs look for them
}

// folderName returns the name of the folder for a source. It changes with what gorbit-setup makes of it.
func folderName(release, id string) string {
	hash := sha256.New()
	fmt.Fprintln(hash, id)
	for _, name := range []string{"loader/entries.h", "loader/load.c"} {
		text, _ := loader.ReadFile(name) // it is part of the program
		hash.Write(text)
	}
	return fmt.Sprintf("%s-%x", release, hash.Sum(nil)[:4])
}

// provide returns the folder of a source below root, which it makes unless it is there.
func provide(ctx context.Context, s *source, root string, build *settings) (*folder, error) {
	f := &folder{path: filepath.Join(root, folderName(s.release, s.id))}
	f.libraries = filepath.Join(f.path, "lib")
	if s.site != "" {
		f.libraries = filepath.Join(s.site, "tensorflow")
	}
	if f.whole() {
		return f, nil
	}
	part := &folder{path: filepath.Join(root, ".part"), libraries: f.libraries}
	defer func() { _ = vfs.RemoveAll(part.path) }() // it has its name, or is removed by the next run
	if err := vfs.RemoveAll(part.path); err != nil {
		return nil, err
	}
	if err := part.fill(ctx, s, build); err != nil {
		return nil, err
	}
	return f, vfs.Rename(part.path, f.path)
}

// whole returns whether the folder was made.
func (f *folder) whole() bool {
	_, err := vfs.Stat(f.path)
	return err == nil
}

// fill makes the files.
func (f *folder) fill(ctx context.Context, s *source, build *settings) error {
	lib := filepath.Join(f.path, "lib")
	if err := vfs.MkdirAll(lib, 0o777); err != nil {
		return err
	}
	from, headers := lib, filepath.Join(f.path, "include")
	if s.site != "" {
		from = f.libraries
		if err := os.Symlink(filepath.Join(from, "include"), headers); err != nil {
			return err
		}
	} else if err := s.copyHeaders(headers); err != nil {
		return err
	}
	functions := map[string][]string{}
	for _, name := range libraries {
		to := ""
		if s.site == "" {
			to = filepath.Join(lib, filepath.Base(name))
		}
		if err := s.copy(name, to); err != nil {
			return err
		}
		var err error
		if functions[name], err = functionsOf(filepath.Join(from, filepath.Base(name))); err != nil {
			return err
		}
	}
	if runtime.GOARCH == "amd64" {
		return makeLoader(ctx, lib, build, slices.Concat(functions[libraries[0]], functions[libraries[1]]))
	}
	return makeStubs(ctx, lib, build, functions)
}

var cFunction = regexp.MustCompile(`^(TF|TFE|TSL)_\w+$`)

// functionsOf returns the names of the C functions that a library has.
func functionsOf(library string) ([]string, error) {
	file, err := elf.Open(library)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", library, err)
	}
	defer file.Close()
	if machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]; file.Machine != machine {
		return nil, fault.Usagef("%s is for %v; expected a library for this machine's %v", library, file.Machine, machine)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return nil, fault.Damagedf("%s: %w", library, err)
	}
	var names []string
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC && elf.ST_BIND(s.Info) == elf.STB_GLOBAL && cFunction.MatchString(s.Name) {
			names = append(names, s.Name)
		}
	}
	return names, nil
}

// makeLoader makes libtensorflow.a: functions with the names of the library's C functions. The first call
// of one loads the library (loader/load.c), and a program that calls none starts in a tenth of the time.
func makeLoader(ctx context.Context, lib string, build *settings, functions []string) error {
	slices.Sort(functions)
	functions = slices.Compact(functions)
	sources := map[string][]byte{}
	for _, name := range []string{"entries.h", "load.c"} {
		text, err := loader.ReadFile("loader/" + name)
		if err != nil {
			return err
		}
		sources[name] = text
	}
	entries := strings.Builder{}
	entries.Write(sources["entries.h"])
	for i, name := range functions {
		fmt.Fprintf(&entries, "\tentry %s, %d\n", name, i)
	}
	objects := []string{filepath.Join(lib, "entries.o"), filepath.Join(lib, "load.o")}
	if _, err := build.compile(ctx, entries.String(), "-c", "-o", objects[0], "-x", "assembler-with-cpp", "-"); err != nil {
		return fmt.Errorf("the C compiler %s cannot make the functions that load TensorFlow: %w", build.CC, err)
	}
	if _, err := build.compile(ctx, string(sources["load.c"]), "-c", "-O2", "-fPIC", "-o", objects[1], "-x", "c", "-"); err != nil {
		return fmt.Errorf("the C compiler %s cannot make what loads TensorFlow: %w", build.CC, err)
	}
	for name, members := range map[string][]string{"libtensorflow.a": objects, "libtensorflow_framework.a": nil} {
		if _, err := output(ctx, "", build.AR, append([]string{"rcs", filepath.Join(lib, name)}, members...)...); err != nil {
			return fmt.Errorf("%s cannot make %s: %w; install binutils (Debian, Ubuntu: apt-get install binutils)", build.AR, name, err)
		}
	}
	return errors.Join(vfs.Remove(objects[0]), vfs.Remove(objects[1]))
}

// makeStubs makes libraries to link with where the library is loaded with the program. The linker, which
// would take seconds to read the 200,000 names of the real ones for every package with C code, is given
// those of the C functions only.
func makeStubs(ctx context.Context, lib string, build *settings, functions map[string][]string) error {
	for i, name := range []string{"libtensorflow.so", "libtensorflow_framework.so"} {
		source := strings.Builder{}
		for _, function := range functions[libraries[i]] {
			fmt.Fprintf(&source, "void %s(void) {}\n", function)
		}
		if _, err := build.compile(ctx, source.String(), "-shared", "-fPIC", "-nostdlib", "-w", "-Wl,-soname,"+filepath.Base(libraries[i]),
			"-o", filepath.Join(lib, name), "-x", "c", "-"); err != nil {
			return fmt.Errorf("the C compiler %s cannot make a library to link with: %w", build.CC, err)
		}
	}
	return nil
}

// try builds a program as the go command does, runs it, and returns the release of TensorFlow that it
// reports.
func (f *folder) try(ctx context.Context, build *settings) (string, error) {
	const program = `#include "tensorflow/c/eager/c_api.h"
#include "tensorflow/c/kernels.h"
#include <stdio.h>
int main(void) { puts(TF_Version()); return 0; }
`
	dir, err := os.MkdirTemp(filepath.Dir(f.path), ".try-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	compile, err := split(build.CGO_CFLAGS)
	if err != nil {
		return "", err
	}
	link, err := split(build.CGO_LDFLAGS)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "try")
	args := slices.Concat(compile, []string{"-o", file, "-x", "c", "-", "-x", "none"}, link, []string{"-ltensorflow", "-ltensorflow_framework", "-ldl", "-lpthread"})
	if _, err := build.compile(ctx, program, args...); err != nil {
		return "", fmt.Errorf("the C compiler %s cannot build a program with TensorFlow: %w", build.CC, err)
	}
	// Without what would choose another library.
	out, err := output(ctx, "", "env", "-u", "GORBIT_TENSORFLOW", "-u", "LD_LIBRARY_PATH", file)
	var failed *programError
	if errors.As(err, &failed) {
		if missing := regexp.MustCompile(`version .(GLIBC(?:XX)?_[\d.]+)' not found`).FindStringSubmatch(failed.stderr); missing != nil {
			return "", fmt.Errorf("the C library of this machine is too old for TensorFlow in %s, which needs %s; expected a newer Linux, or an older release of TensorFlow (--python, --wheel)",
				f.libraries, missing[1])
		}
	}
	if err != nil {
		return "", fmt.Errorf("TensorFlow in %s does not work: %w", f.libraries, err)
	}
	release := strings.TrimSpace(string(out))
	return release, checkRelease(f.libraries, release)
}
