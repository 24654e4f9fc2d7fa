package convert

import (
	"context"
	"testing"
)

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"format":"gorbit-dataset","version":1,"vocab":{"file":"v","size":1},"max_length":3,"splits":{"train":null}}`))
	f.Add([]byte(`{"format":"gorbit-dataset","version":1,"vocab":{"file":"v","size":1},"max_length":3,"labels":["a"],"splits":{"train":{"files":[{"name":"x","records":1}],"records":1}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, reason := parseManifest(data)
		if reason != "" {
			return
		}
		if err := m.TokenizerConfig().Validate(); err != nil && m.Vocab.MaxWordChars >= 0 {
			t.Fatal(err)
		}
		if err := m.Verify(context.Background(), t.TempDir()); err == nil {
			t.Fatalf("an empty folder passes for %s", data)
		}
		again, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, reason := parseManifest(again); reason != "" {
			t.Fatalf("%s: %s", again, reason)
		}
	})
}
