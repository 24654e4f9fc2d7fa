package params

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// What is wrong in a params file is said in the words of params, never in those of Go.
func TestParamsFileErrors(t *testing.T) {
	for _, test := range []struct {
		file string
		line int
		want string
	}{
		{"train:\n  batch_size: [1, 2]\n", 2, "train.batch_size is a list; expected a whole number"},
		{"train:\n  batch_size: {a: 1}\n", 2, "train.batch_size is a section with names; expected a whole number"},
		{"train:\n  batch_size: 99999999999999999999\n", 2, "train.batch_size is 99999999999999999999; expected a whole number"},
		{"train:\n  batch_size: yes please\n", 2, "train.batch_size is yes please; expected a whole number"},
		{"train: [1]\n", 1, "train is a list; expected a section with names"},
		{"optimizer:\n  hyperparameters: 3\n", 2, "optimizer.hyperparameters is 3; expected a section with names"},
		{"optimizer:\n  hyperparameters:\n    beta_1: [1]\n", 3, "optimizer.hyperparameters.beta_1 is a list; expected a number"},
		{"optimizer:\n  hyperparameters:\n    beta_1:\n", 3, "optimizer.hyperparameters.beta_1 has no value"},
		{"train:\n  batch_size: \"4\"\n", 2, `train.batch_size is "4", a text in quotes; expected a whole number, without quotes`},
		{"train:\n  epochs: '1.5'\n", 2, `train.epochs is "1.5", a text in quotes; expected a number, without quotes`},
		{"optimizer:\n  learning_rate: \"\"\n", 2, `optimizer.learning_rate is ""; expected a number`},
		{"graph: [a]\n", 1, "graph is a list; expected a text"},
		{"strategy:\n  worker_timeout: soon\n", 2, "strategy.worker_timeout is soon; expected a duration such as 60s"},
		{"summary:\n  enabled: 3\n", 2, "summary.enabled is 3; expected true or false"},
		{"- 1\n", 1, "the file is a list; expected a section with names"},
		{"seed: 1\nseed: 2\n", 2, "seed is set twice; leave out one"},
		{"epochs: 3\n", 1, "there is no param epochs; did you mean train.epochs?"},
		{"seed: 1\n---\nseed: 2\n", 2, "a second document begins here; expected one; remove the line with ---"},
		{"optimizer:\n  groups:\n  - match: x\n    learning_rate_scle: 1\n", 4, "there is no param optimizer.groups[0].learning_rate_scle; did you mean learning_rate_scale?"},
		{"seed: 1\ntrainer:\n  validation_interval: 50\n  steps_per_loop: 5\n", 3, "there is no param trainer.validation_interval; did you mean train.eval_interval?"},
		{"seed: 1\n\n# more\ntrain:\n  stps: 3\n", 5, "there is no param train.stps; did you mean train.steps?"},
		{"train:\n  steps: 3\n bad: 1\n", 2, "did not find expected key"}, // the section's first line,
		{"seed: 1\ndata: a: b\n", 2, "mapping values are not allowed in this context"},
	} {
		path := filepath.Join(t.TempDir(), "p.yaml")
		if err := os.WriteFile(path, []byte(test.file), 0o644); err != nil {
			t.Fatal(err)
		}
		p := Defaults()
		err := p.Load([]string{path}, nil)
		if want := fmt.Sprintf("params: %s:%d: %s", path, test.line, test.want); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", test.file, err, want)
		}
		if !errors.Is(err, fault.Usage) {
			t.Errorf("%q: %v is not a usage error", test.file, err)
		}
	}
}

// What YAML has of shorthand is read as before.
func TestParamsFileForms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.yaml")
	const file = "---\nseed: 7\neval: &few {steps: 3}\ntrain:\n  <<: *few\n  batch_size: 1e2\n  epochs:\noptimizer: {hyperparameters: {beta_1: .5}}\n...\n"
	if err := os.WriteFile(path, []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	p := Defaults()
	if err := p.Load([]string{path}, nil); err != nil {
		t.Fatal(err)
	}
	if p.Seed != 7 || p.Train.Steps != 3 || p.Train.BatchSize != 100 || p.Train.Epochs != 3 || p.Optimizer.Hyperparameters["beta_1"] != 0.5 {
		t.Errorf("%+v", p)
	}
}

func TestParams(t *testing.T) {
	p := Defaults()
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, []byte("graph: g\ntrain:\n  epochs: 2\noptimizer:\n  hyperparameters:\n    beta_2: 0.98\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := p.Load([]string{file}, []string{"train.epochs=1.5", "optimizer.hyperparameters.epsilon=1e-6", "data.dir=d", "checkpoint.best="}); err != nil {
		t.Fatal(err)
	}
	if p.Graph != "g" || p.Train.Epochs != 1.5 || p.Optimizer.Hyperparameters["beta_2"] != 0.98 || p.Optimizer.Hyperparameters["epsilon"] != 1e-6 ||
		p.Data.Dir != "d" || p.Checkpoint.Best != "" || p.Train.BatchSize != 32 {
		t.Errorf("%+v", p)
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	for setting, want := range map[string]string{
		"train.epoch=3":             "params: train.epoch=3: there is no param train.epoch; did you mean train.epochs?",
		"train.batch_size=many":     "params: train.batch_size=many: train.batch_size is many; expected a whole number",
		"train.batch_size=1.5":      "params: train.batch_size=1.5: train.batch_size is 1.5; expected a whole number",
		"train=3":                   "params: train=3: train is 3; expected a section with names",
		"train.epochs":              `params: setting is "train.epochs"; expected section.name=value`,
		"strategy.worker_timeout=5": "params: strategy.worker_timeout=5: strategy.worker_timeout is 5; expected a duration such as 60s",
		"summary.enabled=perhap":    "params: summary.enabled=perhap: summary.enabled is perhap; expected true or false",
	} {
		q := Defaults()
		var usage *Error
		if err := q.Set(setting); !errors.As(err, &usage) || err.Error() != want {
			t.Errorf("%s: got %v, want %s", setting, err, want)
		}
	}
	text, err := p.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	again, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if a, _ := again.YAML(); !bytes.Equal(a, text) {
		t.Errorf("params.yaml does not read back as it was written:\n%s\n%s", a, text)
	}
}

func TestStrategyParams(t *testing.T) {
	for _, test := range []struct{ settings, want string }{
		{"", "auto"},
		{"strategy.devices=cpu", "one"},
		{"strategy.devices=cpu:2", "mirrored"},
		{"strategy.devices=gpu", "auto"}, // as many as there are
		{"strategy.workers='a:1, b:2'", "multiworker"},
		{"strategy.name=mirrored strategy.devices=cpu", "mirrored"},
		{"strategy.devices=cpu:0", `params: strategy.devices: devices "cpu:0": the number is "0"; expected 1 to 1024`},
		{"strategy.name=one strategy.devices=cpu:2", "params: strategy.devices is cpu:2; expected one device for strategy one; use strategy mirrored for several"},
		{"strategy.name=multiworker", "params: strategy.workers is empty; expected the addresses of gorbit worker processes, host:port,host:port, for strategy multiworker"},
		{"strategy.name=one strategy.workers=a:1", "params: strategy.workers is a:1, which is only for strategy multiworker; leave it out"},
		{"strategy.workers=a:1 strategy.devices=cpu:2", "params: strategy.devices is cpu:2, which is not for strategy multiworker; each worker names its own"},
		{"strategy.workers=a", `params: strategy.workers: address is "a"; expected HOST:PORT, such as 10.0.0.7:2222`},
		{"strategy.workers=a:99999", `params: strategy.workers: address is "a:99999" with port "99999"; expected a port from 1 to 65535`},
		{"strategy.workers='a:1,a:1'", "params: strategy.workers: a:1 is named twice"},
		{"strategy.workers='localhost:1,127.0.0.1:1'", "params: strategy.workers: 127.0.0.1:1 is named twice"},
		{"strategy.input=local strategy.workers='a:1,b:2'", "multiworker"},
		{"strategy.input=local", "params: strategy.input is local, which is only for strategy multiworker; leave it out"},
		{"strategy.accumulate=0", "params: strategy.accumulate is 0; expected 1 or more"},
		{"strategy.bucket_mb=0", "params: strategy.bucket_mb is 0; expected more than 0 and at most 1048576"},
		{"strategy.worker_timeout=10ms", "params: strategy.worker_timeout is 10ms; expected 1s to 1h0m0s"},
		{"strategy.worker_timeout=1h", "auto"},
		{"strategy.worker_timeout=2h", "params: strategy.worker_timeout is 2h0m0s; expected 1s to 1h0m0s"},
		{"strategy.max_restarts=-1", "params: strategy.max_restarts is -1; expected 0 or more"},
	} {
		p := Defaults()
		p.Graph, p.Data.Dir = "g", "d"
		for _, setting := range strings.Split(strings.ReplaceAll(test.settings, ", ", ","), " ") {
			if setting == "" {
				continue
			}
			if err := p.Set(setting); err != nil {
				t.Fatal(err)
			}
		}
		got := p.Strategy.Kind()
		if err := p.Validate(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s\n is %s\nwant %s", test.settings, got, test.want)
		}
	}
}

// TestSplits sets the splits to evaluate on in all forms, and writes them as they were.
func TestSplits(t *testing.T) {
	for _, c := range []struct {
		setting string
		yaml    string // of eval, or a part of an error
		flat    string
	}{
		{"data.eval=test", "eval: test\n", "test"},
		{"data.eval=[test]", "eval: test\n", "test"},
		{"data.eval=[dev, test]", "eval:\n    - dev\n    - test\n", `["dev", "test"]`},
		{`data.eval=["a, b", 'hard-*.tfrecord']`, "eval:\n    - a, b\n    - hard-*.tfrecord\n", `["a, b", "hard-*.tfrecord"]`},
		{"data.eval=dev,test", "eval: dev,test\n", "dev,test"}, // may be the name of a file
		{"data.eval=[]", "data.eval is an empty list; expected the name of a split", ""},
		{"data.eval=[dev, '']", "data.eval has a split without a name; expected", ""},
		{"data.eval=[dev, test, dev]", `data.eval has the split "dev" twice; leave out one`, ""},
		{"data.eval=[dev, a, a/b]", `data.eval has the splits "a" and "a/b", whose metrics could not be told apart`, ""},
		{"data.eval=[dev, [test]]", "data.eval[1] is a list; expected a text", ""},
		{"data.eval={dev: 1}", "data.eval is a section with names; expected a list", ""},
		{"data.eval[0]=dev", "there is no param data.eval[0]", ""},
	} {
		p := Defaults()
		p.Graph, p.Data.Dir = "g", "d"
		err := p.Load(nil, []string{c.setting})
		if err == nil {
			err = p.Validate()
		}
		if err != nil {
			if c.flat != "" || !strings.Contains(err.Error(), c.yaml) {
				t.Errorf("%s: %v, expected %q", c.setting, err, c.yaml)
			}
			continue
		}
		text, err := p.YAML()
		if err != nil || c.flat == "" || !strings.Contains(string(text), "  "+c.yaml) {
			t.Errorf("%s: %v\n%s\nexpected %q", c.setting, err, text, c.yaml)
		}
		flat := p.Flat()["data.eval"]
		if flat != strconv.Quote(c.flat) || !slices.Equal(ParseSplits(c.flat), p.Data.Eval) {
			t.Errorf("%s: is %v in one line, and comes back as %q; expected %s", c.setting, flat, ParseSplits(c.flat), c.flat)
		}
		back := Defaults()
		if err := back.decode(text); err != nil || !slices.Equal(back.Data.Eval, p.Data.Eval) {
			t.Errorf("%s comes back as %q, %v", c.setting, back.Data.Eval, err)
		}
	}
	if d := Defaults().Data.Eval; !slices.Equal(d, Splits{"dev"}) {
		t.Errorf("a setting changed the defaults: %q", d)
	}
}

func TestMetricsOfSplits(t *testing.T) {
	splits := Splits{"dev", "test", "test2", "dir/hard"}
	for _, c := range []struct{ metric, split, plain string }{
		{"f1", "dev", "f1"},
		{"dev/f1", "dev", "dev/f1"}, // the first has plain names
		{"test/f1", "test", "f1"},
		{"test2/f1", "test2", "f1"},
		{"dir/hard/head/f1", "dir/hard", "head/f1"},
		{"dir/f1", "dev", "dir/f1"},
	} {
		if split, plain := splits.Cut(c.metric); split != c.split || plain != c.plain {
			t.Errorf("%s is %s of %s; expected %s of %s", c.metric, plain, split, c.plain, c.split)
		}
	}
	for i, want := range []string{"", "test/", "test2/", "dir/hard/"} {
		if got := splits.Prefix(i); got != want {
			t.Errorf("metrics of %s begin with %q; expected %q", splits[i], got, want)
		}
	}
}

// TestByClass sets the param in all its forms, and writes it as it was.
func TestByClass(t *testing.T) {
	for _, c := range []struct {
		settings []string
		yaml     string // of class_weights, or a part of an error
	}{
		{nil, "class_weights: none\n"},
		{[]string{"data.class_weights=balanced"}, "class_weights: balanced\n"},
		{[]string{"data.class_weights.good=2", "data.class_weights={bad: 0.5}"}, "class_weights:\n    bad: 0.5\n    good: 2\n"},
		{[]string{"data.class_weights.good=2", "data.class_weights=balanced"}, "class_weights: balanced\n"},
		{[]string{"data.class_weights=balanced", "data.class_weights.0=2"}, "class_weights:\n    \"0\": 2\n"},
		{[]string{"data.class_weights=even"}, `data.class_weights is "even"; expected none, balanced, or a number for each class`},
		{[]string{"data.class_weights={}"}, `data.class_weights is ""; expected none`},
		{[]string{"data.class_weights.a=-1"}, "data.class_weights.a is -1; expected a finite number above 0"},
		{[]string{"data.class_weights.a=.nan"}, "data.class_weights.a is NaN"},
		{[]string{"data.class_weights.a=x"}, "data.class_weights.a is x; expected a number"},
		{[]string{"data.class_weights=[1, 2]"}, "data.class_weights is a list; expected a word, or a number for each class"},
	} {
		p := Defaults()
		p.Graph, p.Data.Dir = "g", "d"
		err := p.Load(nil, c.settings)
		if err == nil {
			err = p.Validate()
		}
		if err != nil {
			if !strings.Contains(err.Error(), c.yaml) {
				t.Errorf("%v: %v, expected %q", c.settings, err, c.yaml)
			}
			continue
		}
		text, err := p.YAML()
		if err != nil || !strings.Contains(string(text), "  "+c.yaml) {
			t.Errorf("%v: %v\n%s\nexpected %q", c.settings, err, text, c.yaml)
		}
		back := Defaults()
		if err := back.decode(text); err != nil || fmt.Sprint(back.Data.ClassWeights) != fmt.Sprint(p.Data.ClassWeights) {
			t.Errorf("%v comes back as %v, %v", p.Data.ClassWeights, back.Data.ClassWeights, err)
		}
	}
	p := Defaults()
	p.Graph, p.Data.Dir, p.Data.Shuffle = "g", "d", "none"
	if err := p.Set("data.sampling.a=2"); err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "data.shuffle is none and data.sampling is not uniform; expected full") {
		t.Errorf("sampled without a shuffle: %v", err)
	}
	if d := Defaults(); d.Data.ClassWeights.Of != nil || len(Defaults().Flat()) == 0 {
		t.Error("a setting changed the defaults")
	}
}
