package predict

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/text"
)

// tokenizer returns one whose words are good, film, and the pieces of "goodness".
func taskTokenizer(t *testing.T) *text.Tokenizer {
	t.Helper()
	vocab := []string{text.Pad, text.Unk, text.Cls, text.Sep, text.Mask, "good", "##ness", "film", "."}
	v, err := text.ParseVocab([]byte(strings.Join(vocab, "\n")), "vocab.txt")
	if err != nil {
		t.Fatal(err)
	}
	tokenizer, err := text.NewTokenizer(v, text.Uncased())
	if err != nil {
		t.Fatal(err)
	}
	return tokenizer
}

// model gives each example the Result that make returns.
type taskModel func(e text.Encoding) Result

func (m taskModel) Predict(_ context.Context, examples []text.Encoding) ([]Result, error) {
	var out []Result
	for _, e := range examples {
		out = append(out, m(e))
	}
	return out, nil
}

// answer returns the answer to a text as JSON and as text.
func answerOf(t *testing.T, task string, classes []string, c Config, s string, m taskModel) (string, string) {
	t.Helper()
	var err error
	if c.Renderer, err = NewRenderer(task, []OutputSpec{{Name: "probabilities", Kind: Probabilities, Classes: classes}}); err != nil {
		t.Fatal(err)
	}
	c.Tokenizer = taskTokenizer(t)
	p, err := New(m, c)
	if err != nil {
		t.Fatal(err)
	}
	a, err := p.Answer(context.Background(), text.Pair{A: s})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(a[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(data), a[0].Text()
}

func TestLabels(t *testing.T) {
	model := taskModel(func(text.Encoding) Result { return Result{{Shape: []int{3}, Data: []float64{0.75, 0.25, 0.5}}} })
	got, line := answerOf(t, "multilabel", []string{"sea", "air", "land"}, Config{MaxLength: 8}, "good", model)
	if want := `{"labels":["sea","land"],"probabilities":{"sea":0.75,"air":0.25,"land":0.5}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if line != "sea (75.0 %), land (50.0 %)" {
		t.Error(line)
	}
}

// TestTaskColumns writes answers of tasks after the columns of a table.
func TestTaskColumns(t *testing.T) {
	values := func(shape []int, data ...float64) taskModel {
		return func(text.Encoding) Result { return Result{{shape, data}} }
	}
	for _, c := range []struct {
		task      string
		output    OutputSpec
		model     taskModel
		csv, json string
	}{
		{"regression", OutputSpec{Name: "predictions", Kind: OneValue}, values(nil, 0.5),
			"t,predictions,truncated\ngood,0.5,false\ngood film.,0.5,true\n", `{"t":"good","predictions":0.5,"truncated":false}`},
		{"multilabel", OutputSpec{Kind: Probabilities, Classes: []string{"sea", "air"}}, values([]int{2}, 0.5, 0.75),
			"t,labels,probability_sea,probability_air,truncated\ngood,\"sea,air\",0.500000,0.750000,false\ngood film.,\"sea,air\",0.500000,0.750000,true\n",
			`{"t":"good","labels":["sea","air"],"probabilities":{"air":0.75,"sea":0.5},"truncated":false}`},
		{"mlm", OutputSpec{Kind: Probabilities}, values([]int{1, 2}, 0.25, 0.75),
			"t,masks,truncated\ngood,\"[UNK] (75.0 %), [PAD] (25.0 %)\",false\ngood film.,\"[UNK] (75.0 %), [PAD] (25.0 %)\",true\n",
			`{"t":"good","masks":[{"tokens":["[UNK]","[PAD]"],"scores":[0.75,0.25]}],"truncated":false}`},
	} {
		r, err := NewRenderer(c.task, []OutputSpec{c.output})
		if err != nil {
			t.Fatal(err)
		}
		p, err := New(c.model, Config{Renderer: r, Tokenizer: taskTokenizer(t), MaxLength: 4})
		if err != nil {
			t.Fatal(err)
		}
		for format, want := range map[Format]string{CSV: c.csv, JSON: c.json} {
			in, closeFile, err := Open(t.Context(), file(t, "x.csv", "t\ngood\ngood film.\n"), nil, Columns{Text: "t"})
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			write, _, err := Writer(&out, in, format, r)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Each(t.Context(), in, write); err != nil || !strings.HasPrefix(out.String(), want) {
				t.Errorf("%s, %s: %v, got %s", c.task, format, err, out.String())
			}
			if err := closeFile(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestTags(t *testing.T) {
	// The label of a token is its id's parity, except that pieces of words always have B.
	model := taskModel(func(e text.Encoding) Result {
		v := Values{Shape: []int{len(e.IDs), 2}}
		for _, id := range e.IDs {
			p := []float64{0.25, 0.75}
			if id%2 == 1 {
				p = []float64{0.75, 0.25}
			}
			v.Data = append(v.Data, p...)
		}
		return Result{v}
	})
	for _, c := range []struct {
		max        int
		text, want string
		line       string
	}{
		{16, "Goodness, (film)", `{"words":["Goodness",",","(","film",")"],"tags":["A","A","A","A","A"],"scores":[0.75,0.75,0.75,0.75,0.75]}`, "Goodness/A ,/A (/A film/A )/A"},
		{16, "film.", `{"words":["film","."],"tags":["A","B"],"scores":[0.75,0.75]}`, "film/A ./B"},
		{5, "good goodness film", `{"words":["good","Goodness"],"tags":["A","A"],"scores":[0.75,0.75],"truncated":true}`, "good/A Goodness/A"},
	} {
		c.text = strings.Replace(c.text, "goodness", "Goodness", 1)
		got, line := answerOf(t, "tokens", []string{"A", "B"}, Config{MaxLength: c.max}, c.text, model)
		if got != c.want || line != c.line {
			t.Errorf("%q: got %s, %s; want %s, %s", c.text, got, line, c.want, c.line)
		}
	}
	// Encoded examples have no words.
	r, err := NewRenderer("tokens", []OutputSpec{{Kind: Probabilities}})
	if err != nil {
		t.Fatal(err)
	}
	e := text.Encoding{IDs: []int32{2, 5, 6, 3}}
	a, err := r.Render(Example{Encoding: e}, model(e))
	if err != nil || a.Text() != "0 1" {
		t.Errorf("%v, %v", a, err)
	}
	// The number of a text counts the windows before.
	p, err := New(model, Config{Renderer: r, Tokenizer: taskTokenizer(t), MaxLength: 8, Window: 1})
	if err != nil {
		t.Fatal(err)
	}
	pairs := &List{Texts: []string{"good", "good"}, Pairs: []string{"", "film"}}
	if _, err := p.Each(t.Context(), pairs, func(Answer) error { return nil }); fault.Of(err) != fault.Usage || !strings.Contains(err.Error(), "text 2: the text is a pair; expected a single text") {
		t.Errorf("a pair: %v", err)
	}
	if _, err := r.Render(Example{Encoding: e}, Result{{Shape: []int{3, 2}, Data: make([]float64, 6)}}); err == nil {
		t.Error("probabilities for other tokens are taken")
	}
}

func TestFill(t *testing.T) {
	model := taskModel(func(e text.Encoding) Result {
		v := Values{Shape: []int{0, 9}}
		for _, id := range e.IDs {
			if id == 4 {
				v.Shape[0]++
				v.Data = append(v.Data, 0, 0, 0, 0, 0.1, 0.4, 0, 0.4, 0.1)
			}
		}
		return Result{v}
	})
	for _, c := range []struct {
		top              int
		text, want, line string
	}{
		{0, "good [MASK].", `{"masks":[{"tokens":["good","film","[MASK]",".","[PAD]"],"scores":[0.4,0.4,0.1,0.1,0]}]}`, "good (40.0 %), film (40.0 %), [MASK] (10.0 %), . (10.0 %), [PAD] (0.0 %)"},
		{1, "[MASK] [MASK]", `{"masks":[{"tokens":["good"],"scores":[0.4]},{"tokens":["good"],"scores":[0.4]}]}`, "good (40.0 %) | good (40.0 %)"},
		{1, "good", `{"masks":[]}`, "no [MASK]"},
	} {
		got, line := answerOf(t, "mlm", nil, Config{MaxLength: 8, TopK: c.top}, c.text, model)
		if got != c.want || line != c.line {
			t.Errorf("%q: got %s, %s; want %s, %s", c.text, got, line, c.want, c.line)
		}
	}
}
