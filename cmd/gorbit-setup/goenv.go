package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// defaultFlags are the go command's own for C and for linking.
const defaultFlags = "-O2 -g"

// beside is the run path that installed programs find their library by (tools/dist.py). It marks what
// gorbit-setup wrote: the flag before it names the folder, and the one after it the libraries.
const beside = "-Wl,-rpath,$ORIGIN/../lib/gorbit/tensorflow"

// settings are those of the go command that builds with C use, as it names them.
type settings struct {
	CC, AR, GOENV, GOOS, GOARCH          string
	CGO_ENABLED, CGO_CFLAGS, CGO_LDFLAGS string
}

// goSettings asks the go command.
func goSettings(ctx context.Context) (*settings, error) {
	out, err := output(ctx, "", "go", "env", "-json", "CC", "AR", "GOENV", "GOOS", "GOARCH", "CGO_ENABLED", "CGO_CFLAGS", "CGO_LDFLAGS")
	if errors.Is(err, exec.ErrNotFound) {
		return nil, errors.New("the go command is not on PATH; install Go (https://go.dev/dl), or add its bin folder to PATH")
	}
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	s := new(settings)
	if err := json.Unmarshal(out, s); err != nil {
		return nil, fmt.Errorf("go env -json: %w", err)
	}
	return s, nil
}

// writable returns an error if what is written to Go's settings would have no effect, or the environment
// says other flags than they do.
func (s *settings) writable() error {
	if s.GOARCH != runtime.GOARCH {
		return fault.Usagef("Go builds for %s on this machine's %s, and its settings hold for both; take the output of gorbit-setup --print", s.GOARCH, runtime.GOARCH)
	}
	if s.GOENV == "" || s.GOENV == "off" {
		return fault.Usagef("GOENV is off, so that Go keeps no settings; unset GOENV, or take the output of gorbit-setup --print")
	}
	for _, name := range []string{"CGO_CFLAGS", "CGO_LDFLAGS", "CGO_ENABLED"} {
		if value := os.Getenv(name); value != "" && (name != "CGO_ENABLED" || value == "0") {
			return fault.Usagef("%s is set to %q in the environment, which hides Go's settings; unset it, or take the output of gorbit-setup --print", name, value)
		}
	}
	return nil
}

// checkCompiler returns an error if there is no C compiler that works, or cgo is turned off.
func (s *settings) checkCompiler(ctx context.Context) error {
	const install = "install gcc (Debian, Ubuntu: apt-get install gcc libc6-dev), or name another with go env -w CC=clang"
	_, err := s.compile(ctx, "#include <stdlib.h>\nint main(void) { return 0; }\n", "-x", "c", "-fsyntax-only", "-")
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("there is no C compiler %s; %s", s.CC, install)
	case err != nil:
		return fmt.Errorf("the C compiler %s does not work: %w; %s", s.CC, err, install)
	case s.CGO_ENABLED == "0":
		return fault.Usagef("CGO_ENABLED is 0, so that Go builds no C; type go env -w CGO_ENABLED=1")
	}
	return nil
}

// compile runs the C compiler, which may be a command with arguments of its own.
func (s *settings) compile(ctx context.Context, stdin string, args ...string) ([]byte, error) {
	cc, err := split(s.CC)
	if err != nil || len(cc) == 0 {
		return nil, fmt.Errorf("CC is %q; expected a command", s.CC)
	}
	return output(ctx, stdin, cc[0], append(cc[1:], args...)...)
}

// add adds the flags that a build with a folder needs, in the place of those of another folder.
func (s *settings) add(f *folder) error {
	if err := s.remove(); err != nil {
		return err
	}
	for _, change := range []struct {
		to    *string
		flags []string
	}{
		{&s.CGO_CFLAGS, []string{"-I" + f.path + "/include"}},
		{&s.CGO_LDFLAGS, []string{"-L" + f.path + "/lib", beside, "-Wl,-rpath," + f.libraries}},
	} {
		for _, flag := range change.flags {
			quoted, err := quote(flag)
			if err != nil {
				return err
			}
			*change.to = strings.TrimSpace(*change.to + " " + quoted)
		}
	}
	return nil
}

// remove takes out what add added.
func (s *settings) remove() error {
	link, err := split(s.CGO_LDFLAGS)
	if err != nil {
		return fmt.Errorf("CGO_LDFLAGS: %w", err)
	}
	compile, err := split(s.CGO_CFLAGS)
	if err != nil {
		return fmt.Errorf("CGO_CFLAGS: %w", err)
	}
	at := slices.Index(link, beside)
	if at < 1 || at+1 >= len(link) {
		return nil
	}
	include := "-I" + strings.TrimSuffix(strings.TrimPrefix(link[at-1], "-L"), "/lib") + "/include"
	compile = slices.DeleteFunc(compile, func(flag string) bool { return flag == include })
	link = slices.Delete(link, at-1, at+2)
	if s.CGO_LDFLAGS, err = join(link); err != nil {
		return err
	}
	s.CGO_CFLAGS, err = join(compile)
	return err
}

// write writes the flags to Go's settings. Those that are Go's own are removed from them.
func (s *settings) write(ctx context.Context) error {
	for _, setting := range []struct{ name, value string }{{"CGO_CFLAGS", s.CGO_CFLAGS}, {"CGO_LDFLAGS", s.CGO_LDFLAGS}} {
		args := []string{"env", "-w", setting.name + "=" + setting.value}
		if setting.value == defaultFlags {
			args = []string{"env", "-u", setting.name}
		}
		if _, err := output(ctx, "", "go", args...); err != nil {
			return fmt.Errorf("go env -w: %w; expected to write %s, or take the output of gorbit-setup --print", err, s.GOENV)
		}
	}
	return nil
}

// shell returns the flags as commands of a shell.
func (s *settings) shell() string {
	quoted := func(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
	return "export CGO_CFLAGS=" + quoted(s.CGO_CFLAGS) + "\nexport CGO_LDFLAGS=" + quoted(s.CGO_LDFLAGS) + "\n"
}

// split divides flags as the go command does: at spaces, but not within quotes that a flag begins with.
func split(text string) ([]string, error) {
	var flags []string
	for {
		text = strings.TrimLeft(text, " \t\r\n")
		if text == "" {
			return flags, nil
		}
		if mark := text[0]; mark == '"' || mark == '\'' {
			flag, rest, closed := strings.Cut(text[1:], string(mark))
			if !closed {
				return nil, fmt.Errorf("%s ends within a quotation; expected a closing %c", text, mark)
			}
			flags, text = append(flags, flag), rest
			continue
		}
		end := strings.IndexAny(text, " \t\r\n")
		if end < 0 {
			end = len(text)
		}
		flags, text = append(flags, text[:end]), text[end:]
	}
}

// quote writes a flag so that split reads it.
func quote(flag string) (string, error) {
	switch {
	case flag != "" && !strings.ContainsAny(flag, " \t\r\n'\""):
		return flag, nil
	case !strings.Contains(flag, "'"):
		return "'" + flag + "'", nil
	case !strings.Contains(flag, `"`):
		return `"` + flag + `"`, nil
	}
	return "", fault.Usagef("%s has both kinds of quotation marks, which Go's settings cannot hold; choose another --folder", flag)
}

// join is the inverse of split.
func join(flags []string) (string, error) {
	quoted := make([]string, len(flags))
	for i, flag := range flags {
		var err error
		if quoted[i], err = quote(flag); err != nil {
			return "", err
		}
	}
	return strings.Join(quoted, " "), nil
}

// output runs a program and returns what it writes. The error of one that fails is the first line that it
// wrote to standard error and that says so.
func output(ctx context.Context, stdin, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return out, &programError{err, string(failed.Stderr)}
	}
	return out, err
}

// programError is the error of a program that failed.
type programError struct {
	cause  error
	stderr string
}

// Error returns the line that tells what went wrong, or how the program ended.
func (e *programError) Error() string {
	lines := strings.FieldsFunc(e.stderr, func(r rune) bool { return r == '\n' })
	for _, sign := range []string{"error: ", "ERROR: ", "undefined reference", "cannot ", ""} {
		if i := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, sign) }); i >= 0 {
			return strings.TrimSpace(lines[i])
		}
	}
	return e.cause.Error()
}

// Unwrap returns the error of package exec.
func (e *programError) Unwrap() error { return e.cause }
