package tfrecord

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestShardNames(t *testing.T) {
	if got := ShardName("out/train", 2, 10); got != "out/train-00002-of-00010.tfrecord" {
		t.Errorf("ShardName: %s", got)
	}
	for _, tt := range []struct {
		name         string
		base         string
		shard, count int
		ok           bool
	}{
		{"out/train-00002-of-00010.tfrecord", "out/train", 2, 10, true},
		{"train-123456-of-200000.tfrecord", "train", 123456, 200000, true},
		{"train-00002-of-00010.tfrecord.gz", "train", 2, 10, true},
		{"train-00002-of-00010", "train", 2, 10, true},
		{"mrpc-train.tfrecord-00000-of-00001", "mrpc-train.tfrecord", 0, 1, true},
		{"wiki-part-2-10.tfrecord", "wiki-part", 2, 10, true},
		{"a-1-2-3.tf_record", "a-1", 2, 3, true},
		{"from1-00004-of-00004.tfrecord", "from1", 4, 4, true},
		{"train-00011-of-00010.tfrecord", "", 0, 0, false},
		{"train-00000-of-00000.tfrecord", "", 0, 0, false},
		{"train-00000-of-00010.tfrecord.index", "", 0, 0, false},
		{"log-2024-05-12.tfrecord", "", 0, 0, false},
		{"train-2-10.tsv", "", 0, 0, false},
		{"train.tfrecord", "", 0, 0, false},
		{"-00000-of-00001.tfrecord", "", 0, 0, false},
		{"train-0000000000000000000000-of-1.tfrecord", "", 0, 0, false},
		{"train--1-of-00002.tfrecord", "train-", 1, 2, true},
		{"a-00000-of-00002/b.tfrecord", "", 0, 0, false},
	} {
		base, shard, count, ok := ParseShardName(tt.name)
		if base != tt.base || shard != tt.shard || count != tt.count || ok != tt.ok {
			t.Errorf("%s: %q, %d, %d, %v", tt.name, base, shard, count, ok)
		}
	}
	for _, base := range []string{"x", "a/b-1", "data.v2"} {
		for _, shard := range []int{0, 9, 99999, 123456} {
			b, s, c, ok := ParseShardName(ShardName(base, shard, 200000))
			if b != base || s != shard || c != 200000 || !ok {
				t.Errorf("%s, %d: %q, %d, %d, %v", base, shard, b, s, c, ok)
			}
		}
	}
}

// Two shards whose names end in 3 are two of three, or all that there are, with three records each.
func TestRecordsInNames(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "w-0-3.tfrecord"), filepath.Join(dir, "w-1-3.tfrecord")
	for _, path := range []string{first, second} {
		w, err := Create(path)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := w.Write([]byte("record")); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	found, err := Glob(filepath.Join(dir, "w"))
	if err != nil || !slices.Equal(found, []string{first, second}) {
		t.Fatalf("%v, %v", found, err)
	}
	if got, want := RecordsInNames(found), map[string]int64{first: 3, second: 3}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := RecordsInNames([]string{"t-1-of-2.tfrecord", "x.tfrecord"}); len(got) > 0 {
		t.Errorf("got %v for names without a number of records", got)
	}
}

func TestGlob(t *testing.T) {
	tests := []struct {
		name    string
		files   string
		pattern string
		want    string // the names found
		err     string // or what the error holds
	}{
		{"a file whatever its name", "notes.txt train.tfrecord", "notes.txt", "notes.txt", ""},
		{"one shard as a file", "train-00001-of-00003.tfrecord", "train-00001-of-00003.tfrecord", "train-00001-of-00003.tfrecord", ""},
		{"a base", "train-00001-of-00002.tfrecord train-00000-of-00002.tfrecord train2.tfrecord dev.tfrecord", "train", "train-00000-of-00002.tfrecord train-00001-of-00002.tfrecord", ""},
		{"a base by number, not by name", "t-0-11.tfrecord t-1-11.tfrecord t-2-11.tfrecord t-3-11.tfrecord t-4-11.tfrecord t-5-11.tfrecord t-6-11.tfrecord t-7-11.tfrecord t-8-11.tfrecord t-9-11.tfrecord t-10-11.tfrecord", "t", "t-0-11.tfrecord t-1-11.tfrecord t-2-11.tfrecord t-3-11.tfrecord t-4-11.tfrecord t-5-11.tfrecord t-6-11.tfrecord t-7-11.tfrecord t-8-11.tfrecord t-9-11.tfrecord t-10-11.tfrecord", ""},
		{"a base of one file", "train.tfrecord train.tfrecord.index training.tfrecord", "train", "train.tfrecord", ""},
		{"a base with a compressed file", "train.tfrecord.gz", "train", "train.tfrecord.gz", ""},
		{"a base as Beam names it", "x-train.tfrecord-00000-of-00002 x-train.tfrecord-00001-of-00002", "x-train", "x-train.tfrecord-00000-of-00002 x-train.tfrecord-00001-of-00002", ""},
		{"a base with nothing behind the numbers", "train-00000-of-00002 train-00001-of-00002 train-00000-of-00002.txt train-00000-of-00002.index", "train", "train-00000-of-00002 train-00001-of-00002", ""},
		{"a base that is two things", "train-00000-of-00001.tfrecord train.tfrecord", "train", "", " match; give the full name of one"},
		{"a folder", "b.tfrecord a-00000-of-00001.tfrecord vocab.txt manifest.json b.tfrecord.index .hidden.tfrecord c.tf_record d.tfrecords", ".", "a-00000-of-00001.tfrecord b.tfrecord c.tf_record d.tfrecords", ""},
		{"a folder of checkpoints", "model.data-00000-of-00002 model.index", ".", "", "no TFRecord files"},
		{"a folder with dates", "2024-05-12.tfrecord 2024-06-12.tfrecord", ".", "2024-05-12.tfrecord 2024-06-12.tfrecord", ""},
		{"a pattern", "train-00000-of-00002.tfrecord train-00001-of-00002.tfrecord train-00001-of-00002.tfrecord.index", "train-*", "train-00000-of-00002.tfrecord train-00001-of-00002.tfrecord", ""},
		{"a pattern for some of a whole set", "train-00000-of-00002.tfrecord train-00001-of-00002.tfrecord", "train-00001*", "train-00001-of-00002.tfrecord", ""},
		{"placeholders", "train-0-2.tfrecord train-1-2.tfrecord train-x-2.tfrecord train-1b-2.tfrecord", "train-{shard}-{count}.tfrecord", "train-0-2.tfrecord train-1-2.tfrecord", ""},
		{"counted from 1", "train-00001-of-00002.tfrecord train-00002-of-00002.tfrecord", "train", "train-00001-of-00002.tfrecord train-00002-of-00002.tfrecord", ""},
		{"magic in the folder's name", "[a]*/train.tfrecord", "[a]*", "[a]*/train.tfrecord", ""},
		{"a missing shard", "train-00000-of-00003.tfrecord train-00002-of-00003.tfrecord", "train", "", "1 of 3 missing: train-00001-of-00003.tfrecord"},
		{"a missing shard in a folder", "train-00000-of-00002.tfrecord dev-00000-of-00001.tfrecord", ".", "", "train-00001-of-00002.tfrecord"},
		{"a missing shard of a pattern", "t-00001-of-00003.tfrecord t-00002-of-00003.tfrecord", "t-*", "", "1 of 3 missing: t-00000-of-00003.tfrecord"},
		{"a missing shard beside another set", "t-00000-of-00002.tfrecord t-00001-of-00003.tfrecord", "t-*-of-00002.tfrecord", "", "1 of 2 missing: t-00001-of-00002.tfrecord"},
		{"many missing shards", "train-00001-of-99999.tfrecord", "train", "", "99998 of 99999 missing: train-00000-of-99999.tfrecord, train-00002-of-99999.tfrecord, train-00003-of-99999.tfrecord and 99995 more"},
		{"absurdly many", "train-1-of-999999999.tfrecord", "train", "", "999999998 of 999999999 missing"},
		{"from 0 and from 1", "t-0-of-1.tfrecord t-1-of-1.tfrecord", "t", "", "one too many"},
		{"two sets of one base", "train-00000-of-00001.tfrecord train-00000-of-00002.tfrecord train-00001-of-00002.tfrecord", "train", "", "a set of 1 and one of 2"},
		{"one shard twice", "train-00000-of-00001.tfrecord train-00000-of-00001.tfrecord.gz", "train", "", "is the same shard"},
		{"records in the names", "w-10-7.tfrecord w-0-20.tfrecord w-1-20.tfrecord w-2-20.tfrecord w-3-20.tfrecord w-4-20.tfrecord w-5-20.tfrecord w-6-20.tfrecord w-7-20.tfrecord w-8-20.tfrecord w-9-20.tfrecord", "w", "w-0-20.tfrecord w-1-20.tfrecord w-2-20.tfrecord w-3-20.tfrecord w-4-20.tfrecord w-5-20.tfrecord w-6-20.tfrecord w-7-20.tfrecord w-8-20.tfrecord w-9-20.tfrecord w-10-7.tfrecord", ""},
		{"a gap among records in the names", "w-0-20.tfrecord w-2-7.tfrecord", ".", "", "shard 1 is missing"},
		{"one shard twice, with records in the names", "w-0-20.tfrecord w-1-20.tfrecord w-1-7.tfrecord", ".", "", "is the same shard"},
		{"numbers of something else", "run-12-5.tfrecord run-17-8.tfrecord", ".", "run-12-5.tfrecord run-17-8.tfrecord", ""},
		{"fewer than the names say", "w-0-5.tfrecord w-1-5.tfrecord", ".", "", "3 of 5 missing"},
		{"nothing", "train.txt", "train", "", "no TFRecord files"},
		{"nothing for a pattern", "train.txt", "*.tfrecord", "", "no TFRecord files"},
		{"a bad pattern", "", "[", "", "syntax error in pattern"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			for _, f := range strings.Fields(tt.files) {
				if err := os.MkdirAll(filepath.Dir(f), 0o777); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(f, nil, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Mkdir("folder.tfrecord", 0o777); err != nil {
				t.Fatal(err)
			}
			got, err := Glob(tt.pattern)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || got != nil {
					t.Fatalf("%v, %v, want an error with %q", got, err, tt.err)
				}
				if tt.err == "no TFRecord files" != errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%v is the wrong kind of error", err)
				}
				return
			}
			if err != nil || !slices.Equal(got, strings.Fields(tt.want)) {
				t.Errorf("%q, %v, want %s", got, err, tt.want)
			}
		})
	}
}
