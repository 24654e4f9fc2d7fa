package strategy

import (
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/graphs/build"
)

// TestUnknownReferences wants an error that names what the graph does not have.
func TestUnknownReferences(t *testing.T) {
	b := build.New(nil, nil)
	here := b.Float("here", 1)
	def, err := b.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSession(target{}, def, Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	value, err := newTensor(tf.Float, nil, raw([]float32{2}))
	if err != nil {
		t.Fatal(err)
	}
	gone := build.Ref{Node: "gone"}
	for want, call := range map[string]struct {
		feeds   feedSet
		fetches []build.Ref
		targets []build.Ref
	}{
		`feed: node "gone" not found in the graph`:                        {feeds: feedSet{gone: value}},
		`fetch: node "gone" not found in the graph`:                       {fetches: []build.Ref{here, gone}},
		`run: node "gone" not found in the graph`:                         {targets: []build.Ref{gone}},
		`fetch: "here:1" is no output of the graph; operation here has 1`: {fetches: []build.Ref{here.Output(1)}},
		`feed: "^here" is no output of the graph; operation here has 1`:   {feeds: feedSet{here.After(): value}},
	} {
		if _, err := s.run(t.Context(), call.feeds, call.fetches, call.targets...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if out, err := s.run(t.Context(), nil, []build.Ref{here}, here); err != nil || out[0].Value() != float32(1) {
		t.Errorf("got %v %v, want 1", out, err)
	}
}
