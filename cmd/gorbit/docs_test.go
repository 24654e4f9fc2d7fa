package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// TestDocumentedCommands checks every command line of README.md and the pages, in blocks and in
// running text, against the program that it is for: gorbit's flags, the Makefile's targets, the
// exporter's arguments, and the tests and benchmarks that go test is told to run.
func TestDocumentedCommands(t *testing.T) {
	checks := documentChecks{python: map[string][]pythonCall{}}
	count := map[string]int{}
	for _, page := range documents(t) {
		for _, line := range page.commands() {
			calls, err := parseShell(line.text)
			if err != nil {
				t.Errorf("%s: %q: %v", line.where, line.text, err)
				continue
			}
			for _, call := range calls {
				count[path.Base(call.words[0])]++
				if err := checks.check(line.where, call); err != nil {
					t.Errorf("%s: %q: %v", line.where, line.text, err)
				}
			}
		}
	}
	for program, least := range map[string]int{"gorbit": 60, "make": 30, "go": 8, "python": 8, "gorbit-predict": 1} {
		if count[program] < least {
			t.Errorf("%d commands of %s found; expected at least %d", count[program], program, least)
		}
	}
	checks.runPython(t)
}

// TestExamplesOfHelp checks the examples in the help texts of gorbit's commands.
func TestExamplesOfHelp(t *testing.T) {
	count := 0
	for _, cmd := range allCommands() {
		for line := range strings.Lines(strings.ReplaceAll(cmd.Example, "\\\n", " ")) {
			calls, err := parseShell(strings.TrimSpace(line))
			if err != nil {
				t.Errorf("gorbit %s: %q: %v", cmd.Name(), line, err)
				continue
			}
			for _, call := range calls {
				if call.words[0] != "gorbit" {
					continue
				}
				count++
				if err := checkGorbit(call.words[1:], call.open); err != nil {
					t.Errorf("gorbit %s: %q: %v", cmd.Name(), line, err)
				}
			}
		}
	}
	if count < 8 {
		t.Errorf("%d examples found; expected at least 8", count)
	}
}

// TestDocumentedNames checks that the Go tests, benchmarks and files named on pages exist.
func TestDocumentedNames(t *testing.T) {
	functions := testFunctions(t)
	name := regexp.MustCompile("`((?:Test|Benchmark|Fuzz|Example)[A-Z]\\w*)`")
	source := regexp.MustCompile("`((?:bench|checkpoint|cmd|convert|dataset|graphs|internal|runner|strategy|summary|text|tfrecord|tools|train)/[\\w./-]*)`")
	link := regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)\s]*)?\)`)
	for _, page := range documents(t) {
		for i, line := range page.lines {
			for _, match := range name.FindAllStringSubmatch(line, -1) {
				if !slices.Contains(functions["./..."], match[1]) {
					t.Errorf("%s:%d: there is no Go test %s", page.name, i+1, match[1])
				}
			}
			for _, match := range source.FindAllStringSubmatch(line, -1) {
				if page.name == "CHANGELOG.md" || strings.Contains(match[1], "/.") ||
					strings.HasPrefix(match[1], "train/") && !strings.Contains(match[1], ".") {
					continue // of the past; made by a program; a folder or a tag of a run
				}
				if _, err := os.Stat(filepath.Join(testkit.Root(), match[1])); err != nil {
					t.Errorf("%s:%d: there is no %s", page.name, i+1, match[1])
				}
			}
			for _, match := range link.FindAllStringSubmatch(line, -1) {
				if strings.Contains(match[1], "://") {
					continue
				}
				target := filepath.Join(testkit.Root(), filepath.Dir(page.name), match[1])
				if _, err := os.Stat(target); err != nil {
					t.Errorf("%s:%d: the link to %s leads nowhere", page.name, i+1, match[1])
				}
			}
		}
	}
}

// TestQuestionsAreAnswered checks that each question of docs/design/questions.md links a file, and that
// what its answer names is in one of the files that it links.
func TestQuestionsAreAnswered(t *testing.T) {
	const page = "docs/design/questions.md"
	d, err := readDocument(page)
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\(([^)]+\.go)\)`)
	name := regexp.MustCompile("`(?:\\w+\\.)?(\\w+)`")
	questions := strings.Split(strings.Join(d.lines, "\n"), "\n## ")[1:]
	for _, section := range questions {
		question, answer, _ := strings.Cut(section, "\n")
		var source strings.Builder
		for _, match := range link.FindAllStringSubmatch(answer, -1) {
			text, err := os.ReadFile(filepath.Join(testkit.Root(), filepath.Dir(page), match[1]))
			if err != nil {
				t.Errorf("%s: %s: %v", page, question, err)
			}
			source.Write(text)
		}
		if source.Len() == 0 {
			t.Errorf("%s: %s: the answer links no file of Go", page, question)
		}
		for _, match := range name.FindAllStringSubmatch(answer, -1) {
			if !regexp.MustCompile(`\b` + match[1] + `\b`).MatchString(source.String()) {
				t.Errorf("%s: %s: %s is in no file that the answer links", page, question, match[0])
			}
		}
	}
	if len(questions) != 10 {
		t.Errorf("%s has %d questions; expected 10", page, len(questions))
	}
}

// TestDocumentedCode checks that the Go code of pages is that of an example, which is compiled, and that
// files of examples are shown as they are.
func TestDocumentedCode(t *testing.T) {
	var examples strings.Builder
	files, err := filepath.Glob(filepath.Join(testkit.Root(), "examples/*/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		examples.Write(text)
	}
	shown := regexp.MustCompile(`^# (examples/\S+)\n`)
	count := map[string]int{}
	for _, page := range documents(t) {
		for _, b := range page.blocks() {
			if name := shown.FindStringSubmatch(b.text); name != nil {
				count["files"]++
				file, err := os.ReadFile(filepath.Join(testkit.Root(), name[1]))
				if err != nil || b.text != name[0]+string(file) {
					t.Errorf("%s:%d: this is not %s: %v", page.name, b.line, name[1], err)
				}
			}
			if b.language == "go" {
				count["go"]++
				if !strings.Contains(examples.String(), b.text) {
					t.Errorf("%s:%d: this code is in no example", page.name, b.line)
				}
			}
		}
	}
	if count["go"] < 1 || count["files"] < 2 {
		t.Errorf("%v blocks of code found on the pages", count)
	}
}

// TestPagesAreLaidOut checks that lines of prose wrap at 100 columns, that the table of contents of a
// page fits a screen, and that every page is in the index. Tables, blocks and what benchmarks write
// may be wider.
func TestPagesAreLaidOut(t *testing.T) {
	const widest, mostHeadings = 100, 24
	index := ""
	for _, page := range documents(t) {
		if page.name == "docs/README.md" {
			index = strings.Join(page.lines, "\n")
		}
	}
	for _, page := range documents(t) {
		headings, generated := 0, false
		for i, line := range page.proseLines() {
			if strings.HasPrefix(line, "#") {
				headings++
			}
			generated = strings.Contains(line, "<!-- bench:begin") || generated && !strings.Contains(line, "<!-- bench:end")
			if n := utf8.RuneCountInString(line); n > widest && !generated && !strings.HasPrefix(strings.TrimSpace(line), "|") {
				t.Errorf("%s:%d: a line of %d columns; expected at most %d", page.name, i+1, n, widest)
			}
		}
		if headings > mostHeadings {
			t.Errorf("%s: %d headings; expected at most %d, which fit a screen", page.name, headings, mostHeadings)
		}
		below, ok := strings.CutPrefix(page.name, "docs/")
		if ok && below != "README.md" && !strings.Contains(index, "("+below+")") {
			t.Errorf("docs/README.md does not name %s", page.name)
		}
	}
}

// document is README.md or another page.
type document struct {
	name  string // from the root of the checkout
	lines []string
}

// readDocument returns a page, by its path from the root of the checkout.
func readDocument(name string) (document, error) {
	text, err := os.ReadFile(filepath.Join(testkit.Root(), name))
	return document{name, strings.Split(string(text), "\n")}, err
}

// documents returns the pages whose commands are checked.
func documents(t *testing.T) []document {
	t.Helper()
	var pages []document
	for _, pattern := range []string{"*.md", "bench/README.md", "docs/*.md", "docs/*/*.md"} {
		files, err := filepath.Glob(filepath.Join(testkit.Root(), pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			name, _ := filepath.Rel(testkit.Root(), file)
			page, err := readDocument(name)
			if err != nil {
				t.Fatal(err)
			}
			pages = append(pages, page)
		}
	}
	return pages
}

// located is a piece of text on a page.
type located struct {
	where string // page:line
	text  string
}

var (
	programs = `(?:gorbit|gorbit-predict|make|go|python|prlimit|bash|\./|tools/|[\w./]*bin/[\w-]+)`
	// A line of a block that is a command: a prompt or settings of the environment may come first.
	commandLine = regexp.MustCompile(`^(?:\$ )?((?:[A-Z][A-Z0-9_]*=(?:'[^']*'|"[^"]*"|\S*) )*` + programs + `(?: .*|[\w./-]+.*)?)$`)
	inlineCode  = regexp.MustCompile("`((?:gorbit|gorbit-predict|make|go test|python|\\.venv/bin/python) [^`\\d][^`]*)`")
)

// commands returns the command lines of a page.
func (d document) commands() []located {
	var found []located
	for _, block := range d.blocks() {
		if block.language == "python" { // gorbit.train is no command
			continue
		}
		pending, at := "", ""
		for i, line := range strings.Split(block.text, "\n") {
			line = strings.TrimSpace(line)
			where := fmt.Sprintf("%s:%d", d.name, block.line+i)
			if pending != "" {
				line, where = pending+" "+line, at
				pending = ""
			}
			match := commandLine.FindStringSubmatch(line)
			if match == nil {
				continue
			}
			if rest, ok := strings.CutSuffix(match[1], `\`); ok {
				pending, at = strings.TrimSpace(rest), where
				continue
			}
			found = append(found, located{where, match[1]})
		}
	}
	prose := strings.Join(d.proseLines(), "\n")
	for _, match := range inlineCode.FindAllStringSubmatchIndex(prose, -1) {
		line := 1 + strings.Count(prose[:match[2]], "\n")
		text := strings.Join(strings.Fields(prose[match[2]:match[3]]), " ")
		if strings.Contains(strings.SplitN(text, " -", 2)[0], ": ") {
			continue // a message that begins with the program's name
		}
		// Running text may name a command without all that it needs.
		found = append(found, located{fmt.Sprintf("%s:%d", d.name, line), text + " ..."})
	}
	return found
}

type block struct {
	line     int // of its first line, from 1 on
	language string
	heading  string // the last one before it
	text     string
}

// blocks returns the indented and the fenced blocks of a page.
func (d document) blocks() []block {
	var found []block
	var current *block
	var heading string
	fenced := false
	for i, line := range append(slices.Clone(d.lines), "") {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			if fenced {
				found, current, fenced = append(found, *current), nil, false
				continue
			}
			current, fenced = &block{line: i + 2, language: trimmed[3:], heading: heading}, true
		case fenced:
			current.text += strings.TrimRight(line, " ") + "\n"
		case strings.HasPrefix(line, "    "):
			if current == nil {
				current = &block{line: i + 1, heading: heading}
			}
			current.text += line[4:] + "\n"
		default:
			if current != nil {
				found, current = append(found, *current), nil
			}
			if title := strings.TrimLeft(line, "#"); title != line {
				heading = strings.TrimSpace(title)
			}
		}
	}
	return found
}

// proseLines are the page's lines with those of blocks left empty.
func (d document) proseLines() []string {
	lines := slices.Clone(d.lines)
	for _, block := range d.blocks() {
		for i := range strings.Count(block.text, "\n") {
			lines[block.line-1+i] = ""
		}
		if block.language != "" || strings.HasPrefix(strings.TrimSpace(lines[block.line-2]), "```") {
			lines[block.line-2] = ""
		}
	}
	for i := range lines {
		if strings.HasPrefix(strings.TrimSpace(lines[i]), "```") {
			lines[i] = ""
		}
	}
	return lines
}

// shellCall is a command of a line: a line may have several, joined by pipes or &&.
type shellCall struct {
	settings []string // names of environment variables
	words    []string
	open     bool // "..." stands for further arguments
}

func parseShell(line string) ([]shellCall, error) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(line), "")
	if err != nil {
		return nil, err
	}
	printer := syntax.NewPrinter()
	var calls []shellCall
	syntax.Walk(file, func(node syntax.Node) bool {
		expr, ok := node.(*syntax.CallExpr)
		if !ok {
			return true
		}
		call := shellCall{}
		for _, setting := range expr.Assigns {
			call.settings = append(call.settings, setting.Name.Value)
		}
		for _, word := range expr.Args {
			var text strings.Builder
			for _, part := range word.Parts {
				switch part := part.(type) {
				case *syntax.Lit:
					text.WriteString(strings.ReplaceAll(part.Value, `\`, ""))
				case *syntax.SglQuoted:
					text.WriteString(part.Value)
				case *syntax.DblQuoted:
					for _, inner := range part.Parts {
						if lit, ok := inner.(*syntax.Lit); ok {
							text.WriteString(lit.Value)
						} else {
							printer.Print(&text, inner)
						}
					}
				default:
					printer.Print(&text, part)
				}
			}
			if text.String() == "..." {
				call.open = true
				continue
			}
			call.words = append(call.words, text.String())
		}
		if len(call.words) > 0 && call.words[0] == "prlimit" {
			call.words = slices.DeleteFunc(call.words[1:], func(word string) bool { return strings.HasPrefix(word, "--as=") })
		}
		if len(call.words) > 0 {
			calls = append(calls, call)
		}
		return true
	})
	return calls, nil
}

// documentChecks checks calls; those of Python programs it gathers, to start Python once.
type documentChecks struct {
	python map[string][]pythonCall // by program
}

type pythonCall struct {
	Where  string
	Script string // a file, or "-m" and a module
	Args   []string
	Open   bool
}

func (c *documentChecks) check(where string, call shellCall) error {
	for _, name := range call.settings {
		if strings.HasPrefix(name, "GORBIT_") && !sourceHas(`"`+name+`"`) {
			return fmt.Errorf("nothing reads %s", name)
		}
	}
	switch program, args := call.words[0], call.words[1:]; {
	case path.Base(program) == "gorbit" && len(args) > 0 && args[0] == "demo": // of the Python package
		c.python["tools"] = append(c.python["tools"], pythonCall{where, "-m gorbit", args, call.open})
		return nil
	case path.Base(program) == "gorbit":
		return checkGorbit(args, call.open)
	case path.Base(program) == "gorbit-predict":
		return checkFlags(args, "cmd/gorbit-predict", "internal/app/asked")
	case program == "make":
		return c.checkMake(where, args)
	case program == "go":
		return checkGo(args)
	case strings.HasPrefix(path.Base(program), "python"):
		return c.checkPython(where, program, args, call.open)
	case strings.HasPrefix(program, "tools/"), strings.HasPrefix(program, "./"):
		_, err := os.Stat(filepath.Join(testkit.Root(), program))
		return err
	}
	return nil
}

// checkGorbit parses arguments by the flags of the real commands.
func checkGorbit(args []string, open bool) error {
	cmd, rest, err := newRoot().Find(args)
	if err != nil {
		return err
	}
	behind := []string{}
	if i := slices.Index(rest, "--"); i >= 0 {
		rest, behind = rest[:i], rest[i+1:]
	}
	// A page may name a flag and leave its value to the reader.
	if err := cmd.ParseFlags(rest); err != nil && !strings.Contains(err.Error(), "flag needs an argument") &&
		!strings.Contains(strings.Join(rest, " "), "=...") {
		return err
	}
	positional := cmd.Flags().Args()
	if err := cmd.ValidateArgs(positional); err != nil && !(open && len(positional) == 0) {
		return err
	}
	if len(behind) > 0 {
		switch cmd.Name() {
		case "launch":
			return checkGorbit(append([]string{"train"}, behind...), open)
		case "track":
			return nil // a program of the user's
		}
		return fmt.Errorf("gorbit %s takes nothing after --", cmd.Name())
	}
	return nil
}

// checkFlags checks that the Go source in one of the folders declares the flags.
func checkFlags(args []string, folders ...string) error {
	text := ""
	for _, folder := range folders {
		text += goSource(filepath.Join(testkit.Root(), folder))
	}
	for _, arg := range args {
		name, isFlag := strings.CutPrefix(arg, "--")
		name, _, _ = strings.Cut(name, "=")
		if isFlag && !regexp.MustCompile(`Var\(&[\w.]+, "`+regexp.QuoteMeta(name)+`"`).MatchString(text) {
			return fmt.Errorf("unknown flag: %s", arg)
		}
	}
	return nil
}

// checkMake checks targets and variables against the Makefile, and the options that they hand on.
func (c *documentChecks) checkMake(where string, args []string) error {
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "Makefile"))
	if err != nil {
		return err
	}
	for _, arg := range args {
		name, value, isVariable := strings.Cut(arg, "=")
		if !isVariable {
			if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(arg) + `:`).Match(text) {
				return fmt.Errorf("the Makefile has no target %s", arg)
			}
			continue
		}
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` [?:]?=`).Match(text) {
			return fmt.Errorf("the Makefile has no variable %s", name)
		}
		script := map[string]string{"BENCH": "bench", "CHECK": "bench/check_gpu.py"}[name]
		if script == "" {
			continue
		}
		calls, err := parseShell(script + " " + value)
		if err != nil {
			return err
		}
		c.python["tools"] = append(c.python["tools"], pythonCall{where, script, calls[0].words[1:], calls[0].open})
	}
	return nil
}

func (c *documentChecks) checkPython(where, program string, args []string, open bool) error {
	switch {
	case len(args) == 0:
		return fmt.Errorf("%s without arguments", program)
	case args[0] != "-m":
		text, err := os.ReadFile(filepath.Join(testkit.Root(), args[0]))
		if err != nil {
			return err
		}
		if !strings.Contains(string(text), "parse_args") && len(args) == 1 {
			return nil // it has no arguments to parse, and would run
		}
		c.python["tools"] = append(c.python["tools"], pythonCall{where, args[0], args[1:], open})
	case len(args) > 1 && args[1] == "gorbit_export":
		args = args[2:]
		if open {
			kind := "bert-classifier"
			if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
				kind, args = args[0], args[1:]
			}
			args = append([]string{kind, "--config=tiny", "--out=x"}, args...)
		}
		c.python["tools"] = append(c.python["tools"], pythonCall{where, "-m gorbit_export", args, open})
	}
	return nil
}

// parseOnly has Python programs parse their arguments and do no more.
const parseOnly = `
import argparse, contextlib, io, json, os, runpy, sys

class Parsed(Exception): pass

parse = argparse.ArgumentParser.parse_args

def main(root):
    os.chdir(root)
    sys.path[:0] = [root + "/tools", root + "/bench"]
    for call in json.load(sys.stdin):
        errors = io.StringIO()
        def parse_args(parser, argv=None, namespace=None):
            if call["Open"]:
                for action in parser._actions:
                    action.required = False
            with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(errors):
                try:
                    parse(parser, argv, namespace)
                except SystemExit as stop:
                    if stop.code and not (call["Open"] and "are required" in errors.getvalue()):
                        raise
            raise Parsed
        argparse.ArgumentParser.parse_args = parse_args
        sys.argv = [call["Script"], *call["Args"]]
        try:
            if call["Script"].startswith("-m "):
                runpy.run_module(call["Script"][3:], run_name="__main__")
            else:
                runpy.run_path(call["Script"], run_name="__main__")
        except Parsed:
            continue
        except SystemExit:
            pass
        except ImportError as err:  # of a peer's own environment
            if err.name in ("tokenizers", "transformers"):
                continue
        said = errors.getvalue().strip().splitlines() or ["it parses no arguments"]
        print(f"{call['Where']}: {call['Script']} {' '.join(call['Args'])}: {said[-1]}")

main(sys.argv[1])
`

// runPython checks the gathered calls of Python programs.
func (c *documentChecks) runPython(t *testing.T) {
	t.Helper()
	calls := c.python["tools"]
	if len(calls) < 30 {
		t.Errorf("%d commands of Python programs found; expected at least 30", len(calls))
	}
	input, err := json.Marshal(calls)
	if err != nil {
		t.Fatal(err)
	}
	cmd := testkit.Command(t, testkit.Python(t), "-c", parseOnly, testkit.Root())
	cmd.Stdin = strings.NewReader(string(input))
	out, err := cmd.CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("python: %v\n%s", err, out)
	}
}

// checkGo checks that the packages of a go command exist, and that the patterns of go test match
// tests, benchmarks and flags that they have.
func checkGo(args []string) error {
	if known := []string{"test", "run", "doc", "tool", "build", "mod", "get"}; len(args) == 0 || !slices.Contains(known, args[0]) {
		return fmt.Errorf("expected go and one of %s", strings.Join(known, ", "))
	}
	if args[0] == "run" && len(args) > 1 {
		if folder, ok := strings.CutPrefix(args[1], "github.com/gorbit-ml/gorbit/"); ok {
			folder, _, _ = strings.Cut(folder, "@")
			if _, err := os.Stat(filepath.Join(testkit.Root(), folder)); err != nil {
				return err
			}
			return checkFlags(args[2:], folder)
		}
	}
	if args[0] != "test" {
		return nil
	}
	var packages []string
	for _, arg := range args[1:] {
		if strings.HasPrefix(arg, "./") {
			if _, err := os.Stat(filepath.Join(testkit.Root(), strings.TrimSuffix(arg, "..."))); err != nil {
				return err
			}
			packages = append(packages, arg)
		}
	}
	if len(packages) == 0 {
		return fmt.Errorf("no package is named")
	}
	functions := collectTestFunctions()
	for i := 1; i < len(args); i++ {
		name, value, joined := strings.Cut(args[i], "=")
		if !strings.HasPrefix(name, "-") {
			continue
		}
		if !joined && i+1 < len(args) {
			value = args[i+1]
		}
		kinds := map[string][]string{"-run": {"Test", "Example", "Fuzz"}, "-bench": {"Benchmark"}, "-fuzz": {"Fuzz"}}[name]
		if kinds == nil {
			if !slices.Contains([]string{"-v", "-benchtime", "-count", "-cpu", "-race", "-timeout", "-short", "-cpuprofile", "-benchmem"}, name) &&
				!slices.ContainsFunc(packages, func(p string) bool {
					return regexp.MustCompile(`flag\.\w+\("` + name[1:] + `"`).MatchString(testSource(filepath.Join(testkit.Root(), p)))
				}) {
				return fmt.Errorf("no test of %v has the flag %s", packages, name)
			}
			continue
		}
		if value == "^$" {
			continue
		}
		first, _, _ := strings.Cut(value, "/")
		pattern, err := regexp.Compile(first)
		if err != nil {
			return err
		}
		for _, p := range packages {
			if !slices.ContainsFunc(functions[p], func(name string) bool {
				return slices.ContainsFunc(kinds, func(kind string) bool { return strings.HasPrefix(name, kind) }) && pattern.MatchString(name)
			}) {
				return fmt.Errorf("%s %s matches nothing in %s", name, value, p)
			}
		}
	}
	return nil
}

// collectTestFunctions returns the tests, benchmarks, fuzz tests and examples by package ("./train"),
// and all of them as "./...".
var collectTestFunctions = sync.OnceValue(func() map[string][]string {
	functions := map[string][]string{}
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz|Example)\w*)\(`)
	filepath.WalkDir(testkit.Root(), func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && file != testkit.Root() && (name[0] == '.' || name == "testdata") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(file, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		relative, _ := filepath.Rel(testkit.Root(), filepath.Dir(file))
		for _, match := range declaration.FindAllSubmatch(text, -1) {
			for _, p := range []string{"./" + filepath.ToSlash(relative), "./..."} {
				functions[p] = append(functions[p], string(match[1]))
			}
		}
		return nil
	})
	return functions
})

func testFunctions(t *testing.T) map[string][]string {
	t.Helper()
	functions := collectTestFunctions()
	if len(functions["./..."]) < 400 {
		t.Fatalf("%d test functions found; expected at least 400", len(functions["./..."]))
	}
	return functions
}

// goSource is the Go source of a folder without its tests, testSource that of the tests.
func goSource(folder string) string   { return source(folder, false) }
func testSource(folder string) string { return source(folder, true) }

func source(folder string, tests bool) string {
	files, _ := filepath.Glob(filepath.Join(folder, "*.go"))
	var text strings.Builder
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") == tests {
			content, _ := os.ReadFile(file)
			text.Write(content)
		}
	}
	return text.String()
}

// sourceHas reports whether any Go or C source file contains a text.
func sourceHas(text string) bool {
	found := false
	filepath.WalkDir(testkit.Root(), func(file string, entry fs.DirEntry, err error) error {
		if err != nil || found {
			return err
		}
		if entry.IsDir() && file != testkit.Root() && entry.Name()[0] == '.' {
			return filepath.SkipDir
		}
		if ext := filepath.Ext(file); ext == ".go" || ext == ".c" {
			content, err := os.ReadFile(file)
			found = found || err == nil && strings.Contains(string(content), text)
		}
		return nil
	})
	return found
}
