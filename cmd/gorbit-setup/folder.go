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

// loader has what programs are linked with in the place of the library.
//
//go:embed loader
var loader embed.FS

// folder is what builds need of one TensorFlow:
//
//	include/    the headers; a link to those of a Python
//	lib/        libtensorflow.a, to link with; of a wheel also the libraries and their licences
//	*.libs/     of a wheel, what the libraries need of others (libomp, on ARM)
type folder struct {
	path      string
	libraries string // the folder of the libraries, where programs look for them
}

// loaderSources returns the sources of what programs for a processor are linked with: the entries, and
// what loads the library.
func loaderSources(goarch string) (entries, load []byte, err error) {
	if entries, err = loader.ReadFile("loader/entries_" + goarch + ".h"); err != nil {
		return nil, nil, err
	}
	load, err = loader.ReadFile("loader/load.c")
	return entries, load, err
}

// folderName returns the name of the folder for a source. It changes with what gorbit-setup makes of it.
func folderName(release, id, goarch string) string {
	hash := sha256.New()
	fmt.Fprintln(hash, id, releases())
	entries, load, _ := loaderSources(goarch) // they are part of the program
	hash.Write(entries)
	hash.Write(load)
	return fmt.Sprintf("%s-%x", release, hash.Sum(nil)[:4])
}

// provide returns the folder of a source below root, which it makes unless it is there.
func provide(ctx context.Context, s *source, root string, build *settings) (*folder, error) {
	f := &folder{path: filepath.Join(root, folderName(s.release, s.id, build.GOARCH))}
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
	var functions []string
	for _, name := range libraries {
		to := ""
		if s.site == "" {
			to = filepath.Join(lib, filepath.Base(name))
		}
		if err := s.copy(name, to); err != nil {
			return err
		}
		found, err := functionsOf(filepath.Join(from, filepath.Base(name)), build.GOARCH)
		if err != nil {
			return err
		}
		functions = append(functions, found...)
	}
	if s.site == "" {
		if err := s.copyRest(f.path, lib); err != nil {
			return err
		}
	}
	return makeLoader(ctx, lib, build, functions)
}

var cFunction = regexp.MustCompile(`^(TF|TFE|TSL)_\w+$`)

// machines are the processors that there are entries for, by Go's names.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// functionsOf returns the names of the C functions that a library for a processor has.
func functionsOf(library, goarch string) ([]string, error) {
	file, err := elf.Open(library)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", library, err)
	}
	defer file.Close()
	if machine := machines[goarch]; file.Machine != machine {
		return nil, fault.Usagef("%s is for %v; expected a library for %v, which Go builds for", library, file.Machine, machine)
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
	macros, load, err := loaderSources(build.GOARCH)
	if err != nil {
		return err
	}
	entries := strings.Builder{}
	entries.Write(macros)
	for i, name := range functions {
		fmt.Fprintf(&entries, "\tentry %s, %d\n", name, i)
	}
	objects := []string{filepath.Join(lib, "entries.o"), filepath.Join(lib, "load.o")}
	if _, err := build.compile(ctx, entries.String(), "-c", "-o", objects[0], "-x", "assembler-with-cpp", "-"); err != nil {
		return fmt.Errorf("the C compiler %s cannot make the functions that load TensorFlow: %w", build.CC, err)
	}
	known := fmt.Sprintf("-DGORBIT_RELEASES=%q", releases())
	if _, err := build.compile(ctx, string(load), "-c", "-O2", "-fPIC", known, "-o", objects[1], "-x", "c", "-"); err != nil {
		return fmt.Errorf("the C compiler %s cannot make what loads TensorFlow: %w", build.CC, err)
	}
	for name, members := range map[string][]string{"libtensorflow.a": objects, "libtensorflow_framework.a": nil} {
		if _, err := output(ctx, "", build.AR, append([]string{"rcs", filepath.Join(lib, name)}, members...)...); err != nil {
			return fmt.Errorf("%s cannot make %s: %w; install binutils (Debian, Ubuntu: apt-get install binutils)", build.AR, name, err)
		}
	}
	return errors.Join(vfs.Remove(objects[0]), vfs.Remove(objects[1]))
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
	run := []string{"-u", "GORBIT_TENSORFLOW", "-u", "LD_LIBRARY_PATH"}
	if build.GOARCH != runtime.GOARCH {
		run = append(run, fmt.Sprintf("go_linux_%s_exec", build.GOARCH)) // as go run does (go help run)
	}
	out, err := output(ctx, "", "env", append(run, file)...)
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
