package launch

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hosts.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPlansThatAreWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "hosts is empty",
		"hosts: [{adress: a:1}]":  `line 1: hosts[0] has an unknown field "adress", expected address, devices, threads, ssh or local`,
		"hosts: 3":                `line 1: hosts is "3", expected a list`,
		"hosts: [a:1]":            `line 1: hosts[0] is "a:1", expected fields and their values`,
		"hosts: {a: b}":           "line 1: hosts is fields and their values, expected a list",
		"hosts:\n- threads: many": `line 2: hosts[0].threads is "many", expected a whole number`,
		"hosts: [{threads: 1.5}]": `hosts[0].threads is "1.5", expected a whole number`,
		"hosts: [{threads: 99999999999999999999}]":                 `hosts[0].threads is "99999999999999999999", expected a whole number`,
		"hosts: [{}, {local: 7}]":                                  `line 1: hosts[1].local is "7", expected true or false`,
		"{hosts: [{}], strategy: [one]}":                           "strategy is a list, expected text",
		"{hosts: [{}], log_level: loud}":                           `log_level is "loud", expected fields and their values`,
		"- a:1":                                                    "line 1: the file is a list, expected fields and their values",
		"hosts: [{}]\n---\nhosts: [{}]":                            "line 2: a second document, expected one",
		"a: b: c":                                                  "mapping values are not allowed",
		"hosts: [{devices: cpu, devices: gpu}]":                    `line 1: hosts[0].devices is given twice`,
		"hosts: &all [*all]":                                       "hosts[0] is a list, expected fields and their values",
		"hosts: [{address: a}, {address: b:1}]":                    `hosts[0]: address is "a"; expected HOST:PORT`,
		"hosts: [{address: a:0}, {address: b:1}]":                  `expected a port from 1 to 65535`,
		"hosts: [{address: ':1'}, {address: b:1}]":                 "expected HOST:PORT",
		"hosts: [{address: '-x:1'}, {address: b:1}]":               "expected a host that other machines can reach",
		"hosts: [{address: 'a,b:1'}, {address: b:1}]":              "expected a host that other machines can reach",
		"hosts: [{address: a:1}, {address: a:1}]":                  "hosts[0] and hosts[1] have the same address a:1;",
		"hosts: [{address: localhost:1}, {address: 127.0.0.1:1}]":  "hosts[0] and hosts[1] have the same address localhost:1, which is 127.0.0.1:1;",
		"hosts: [{devices: tpu}]":                                  `devices "tpu": a TPU is not a device of this machine`,
		"hosts: [{devices: 'cpu:0'}]":                              `devices "cpu:0": the number is "0"; expected 1`,
		"hosts: [{threads: -1}]":                                   "threads is -1",
		"{hosts: [{}], strategy: many}":                            `strategy is "many"`,
		"{hosts: [{}], strategy: multiworker}":                     `address is ""; expected HOST:PORT`,
		"{hosts: [{address: a:1}, {address: b:1}], strategy: one}": "strategy is one, which runs in one process",
		"{hosts: [{}], precision: half}":                           `precision is "half"; expected float32, bf16 or fp16`,
		"{hosts: [{}], log_level: {chief: loud}}":                  `log_level.chief is "loud"`,
		"{hosts: [{}], log_level: {workers: loud}}":                `log_level.workers is "loud"`,
	} {
		path := write(t, text)
		_, err := ReadPlan(path)
		var wrong *PlanError
		if !errors.As(err, &wrong) || !strings.HasPrefix(err.Error(), path+": ") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s\n%v\nwant one line with %s", text, err, want)
		}
	}
}

func TestMake(t *testing.T) {
	for _, test := range []struct{ plan, token, want string }{
		{"hosts: [{}]", "", "G train --run r"},
		{"hosts: [{}]", "token", "G train --run r"},
		{"hosts: [{address: localhost:1}, {address: 'a:2', devices: gpu}, {address: 'b:3', ssh: me@b}]", "token",
			"here G worker --listen localhost:1 --token-file -\nthere gorbit worker --listen a:2 --devices gpu --token-file token\n" +
				"here ssh -T -o BatchMode=yes me@b 'gorbit worker --listen b:3 --token-file - --end-with-input'\n" +
				"G train --strategy multiworker --workers localhost:1,a:2,b:3 --token-file - --run r"},
		{"hosts: [{devices: gpu}]", "", "G train --devices gpu --run r"},
		{"hosts: [{devices: 'cpu:2'}]", "", "G train --strategy mirrored --devices cpu:2 --run r"},
		{"{hosts: [{address: localhost:1, devices: 'cpu:2', threads: 1}], strategy: one, log_level: {chief: warn}}", "",
			"G train --log-level warn --strategy one --devices cpu:2 --set runtime.intra_op_threads=1 --run r"},
		{"{hosts: [{address: '[::1]:1'}], strategy: multiworker}", "", "here G worker --listen '[::1]:1'\nG train --strategy multiworker --workers '[::1]:1' --run r"},
		{"hosts: [{address: 10.0.0.1:1}]", "", "there gorbit worker --listen 10.0.0.1:1\nG train --strategy multiworker --workers 10.0.0.1:1 --run r"},
		{"{hosts: [{address: a:1, local: true, threads: 3}, {address: 127.0.0.1:2, devices: gpu, local: false}], log_level: {workers: error}}", "",
			"here G worker --log-level error --listen a:1 --threads 3\nthere gorbit worker --log-level error --listen 127.0.0.1:2 --devices gpu\n" +
				"G train --strategy multiworker --workers a:1,127.0.0.1:2 --run r"},
	} {
		p, err := ReadPlan(write(t, test.plan))
		if err != nil {
			t.Errorf("%s: %v", test.plan, err)
			continue
		}
		c, err := p.Make("G", Access{TokenFile: test.token}, []string{"--run", "r"})
		if err != nil {
			t.Errorf("%s: %v", test.plan, err)
			continue
		}
		got := ""
		for _, w := range c.Workers {
			got += map[bool]string{true: "here ", false: "there "}[w.Local] + w.String() + "\n"
		}
		if got += c.Chief.String(); got != test.want {
			t.Errorf("%s\n%s\nwant\n%s", test.plan, got, test.want)
		}
	}
}

// TestOneMachine makes commands of processes that reach each other by sockets, which they can where
// all hosts are this machine.
func TestOneMachine(t *testing.T) {
	for text, want := range map[string]bool{
		"hosts: [{}]": false, // no workers
		"hosts: [{address: localhost:1}, {address: 'a:2', local: true}]":             true,
		"{hosts: [{address: '[::1]:1'}], strategy: multiworker}":                     true,
		"hosts: [{address: localhost:1}, {address: a:2}]":                            false,
		"hosts: [{address: localhost:1}, {address: localhost:2, ssh: me@localhost}]": false,
		"hosts: [{address: localhost:1}, {address: 127.0.0.1:2, local: false}]":      false,
	} {
		p, err := ReadPlan(write(t, text))
		if err != nil || p.OneMachine() != want {
			t.Errorf("%s: %v, %v; want %v", text, p.OneMachine(), err, want)
		}
	}
	p := Plan{Hosts: []Host{{Address: "localhost:1"}, {Address: "localhost:2"}}}
	c, err := p.Make("G", Access{Sockets: "/s", TokenFile: "token"}, []string{"--run", "r"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Workers[1].String(), "G worker --listen localhost:2 --sockets /s"; got != want || c.Workers[1].Token {
		t.Errorf("%s, want %s without a token", got, want)
	}
	if got, want := c.Chief.String(), "G train --strategy multiworker --workers localhost:1,localhost:2 --sockets /s --run r"; got != want || c.Chief.Token {
		t.Errorf("%s, want %s without a token", got, want)
	}
}

func TestMakeRefusesWhatThePlanSays(t *testing.T) {
	for _, args := range [][]string{{"--workers", "a:1"}, {"--run", "r", "--devices=gpu"}, {"--strategy=one"}, {"--token-file", "t"}, {"--tls-ca=t"}, {"--sockets=s"}} {
		var wrong *ArgumentError
		if _, err := (Plan{Hosts: []Host{{}}}).Make("G", Access{}, args); !errors.As(err, &wrong) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestSSHMustBeAnotherMachine(t *testing.T) {
	for _, ssh := range []string{"-oProxyCommand=x", "a b"} {
		p := Plan{Hosts: []Host{{Address: "a:1", SSH: ssh}}}
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "expected the name of another machine") {
			t.Errorf("%q: %v", ssh, err)
		}
	}
}

// A shell takes a printed command for the words that it was made of.
func TestStringIsForAShell(t *testing.T) {
	words := []string{"printf", `%s\n`, "plain", "", "two words", "it's", `"$HOME"`, "a;b|c&d", "*?[x]", "~", "é\t!", "a=b,c:d@e%f+g", "-x", "#x", `\`}
	out, err := testkit.Command(t, "sh", "-c", Command{Args: words}.String()).Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Join(words[2:], "\n") + "\n"; string(out) != want {
		t.Errorf("%q\nwant %q", out, want)
	}
}

func TestAsk(t *testing.T) {
	yes := true
	for _, test := range []struct {
		name, answers string
		from, want    Plan
	}{
		{"defaults", strings.Repeat("\n", 5), Plan{}, Plan{Hosts: []Host{{}}, Strategy: devices.Auto, LogLevel: LogLevel{Chief: "info"}}},
		{"two hosts", "2\n\ncpu:2\n10.0.0.7:2222\ngpu\nbf16\nwarn\nerror\n", Plan{}, Plan{Strategy: devices.MultiWorker, Precision: "bf16", LogLevel: LogLevel{"warn", "error"},
			Hosts: []Host{{Address: "127.0.0.1:2222", Devices: "cpu:2"}, {Address: "10.0.0.7:2222", Devices: "gpu"}}}},
		{"nonsense is asked for again", "none\n0\n1\ntpu\ngpu:2\nmultiworker\none\nhalf\nany\nloud\ndebug\n", Plan{},
			Plan{Hosts: []Host{{Devices: "gpu:2"}}, Strategy: devices.One, LogLevel: LogLevel{Chief: "debug"}}},
		{"what was there stays", strings.Repeat("\n", 8), Plan{Precision: "fp16", Hosts: []Host{{Address: "a:1", Local: &yes, Threads: 2}, {Address: "b:1", Devices: "gpu"}}},
			Plan{Hosts: []Host{{Address: "a:1", Local: &yes, Threads: 2}, {Address: "b:1", Devices: "gpu"}}, Strategy: devices.MultiWorker, Precision: "fp16", LogLevel: LogLevel{"info", "warn"}}},
		{"the same address is asked for again", "2\na:1\n\na:1\nb:1\n\n\n\n\n", Plan{}, Plan{Strategy: devices.MultiWorker, LogLevel: LogLevel{"info", "warn"},
			Hosts: []Host{{Address: "a:1"}, {Address: "b:1"}}}},
		{"a default that is taken is not offered", "2\n127.0.0.1:2223\n\n\n\n\n\n\n", Plan{}, Plan{Strategy: devices.MultiWorker, LogLevel: LogLevel{"info", "warn"},
			Hosts: []Host{{Address: "127.0.0.1:2223"}, {Address: "127.0.0.1:2224"}}}},
	} {
		out := new(output)
		got, err := Ask(strings.NewReader(test.answers), out, test.from)
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, %v\nwant %+v\n%s", test.name, got, err, test.want, out)
			continue
		}
		path := filepath.Join(t.TempDir(), "p.yaml")
		if err := got.Write(t.Context(), path, false); err != nil {
			t.Fatal(err)
		}
		if again, err := ReadPlan(path); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%s: read back as %+v, %v", test.name, again, err)
		}
	}
	if _, err := Ask(strings.NewReader("2\n"), new(output), Plan{}); err == nil {
		t.Error("an input that ends early makes a plan")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("{hosts: [{address: a:1, devices: 'cpu:2', threads: 1, local: true}], strategy: auto, precision: bf16, log_level: {chief: info}}")
	f.Add("hosts: &all [*all]")
	f.Add("hosts: [{}]\n---\n{}")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parse([]byte(text))
		if err != nil && strings.ContainsAny(err.Error(), "\n") {
			t.Errorf("%q is more than one line", err)
		}
		if err == nil {
			_ = p.Validate() // must not panic
		}
	})
}
