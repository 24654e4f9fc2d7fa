package convert

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// TestShardFolders reads folders of a split's shards in the order of their numbers.
func TestShardFolders(t *testing.T) {
	row := func(word string) string { return `{"t": "` + word + `", "l": "0"}` + "\n" }
	dir := write(t, map[string]string{
		"data/train-00001-of-00002.jsonl": row("b"), "data/train-00000-of-00002.jsonl": row("a"), "data/validation-00000-of-00001-0123456789abcdef.jsonl": row("c"),
		"data/README.md": "x", "data/.train-00002-of-00002.jsonl": "x",
		"numbers/0001.jsonl": row("e"), "numbers/0000.jsonl": row("d"),
		"short/train-00000-of-00003.jsonl": row("a"), "short/train-00002-of-00003.jsonl": row("a"),
		"gap/0000.jsonl": row("a"), "gap/0002.jsonl": row("a"),
		"two/validation-00000-of-00001.jsonl": row("a"), "two/dev-00000-of-00001.jsonl": row("a"),
		"twice/train-00000-of-00001.jsonl": row("a"), "twice/train-00000-of-00001.csv": "t,l\na,0\n",
		"other/rows.jsonl": row("a"), "none/x.md": "x",
	})
	cfg := in(dir, Config{TextColumn: "t", LabelColumn: "l", Inputs: []Input{{Train, "data"}, {Dev, "data"}, {Test, "numbers"}}})
	m := mustRun(t, cfg)
	for split, want := range map[string][]string{Train: {"0: a", "0: b"}, Dev: {"0: c"}, Test: {"0: d", "0: e"}} {
		if got := shown(m.Labels, records(t, cfg, split)); !slices.Equal(got, want) {
			t.Errorf("%s: %q; expected %q", split, got, want)
		}
	}
	for _, tt := range []struct {
		split, folder, want string
		class               fault.Class
	}{
		{Train, "short", "short lacks 1 file of the 3 shards, that of number 1; download it", fault.Damaged},
		{Train, "gap", "gap lacks 1 file of the 3 shards, that of number 1", fault.Damaged},
		{Dev, "two", `two has shards of "dev", "validation", each of which may be the dev split`, fault.Usage},
		{Train, "twice", "are the same shard", fault.Usage},
		{Test, "data", `data has no shards of the test split; it has those of "train", "validation"`, fault.Usage},
		{Train, "other", `other is a folder with "rows.jsonl"; expected shards`, fault.Usage},
		{Train, "none", "none is a folder without tables", fault.Usage},
	} {
		cfg := in(dir, Config{TextColumn: "t", LabelColumn: "l", Inputs: []Input{{tt.split, tt.folder}}})
		cfg.Out = filepath.Join(dir, "wrong")
		if _, err := Run(t.Context(), cfg, quiet); fault.Of(err) != tt.class || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; expected %q", tt.folder, err, tt.want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "wrong")); err == nil {
		t.Error("a refused conversion left a folder")
	}
}
