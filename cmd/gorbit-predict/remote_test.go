package main

import (
	"strings"
	"testing"
)

func TestBucketsAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"--model", "gs://b/served", "--text", "a"},
		{"--model", "served", "--file", "gs://b/lines.txt"},
	} {
		code, _, stderr := call("", args...)
		if code != 2 || !strings.Contains(stderr, "copy it first, as with gcloud storage cp ") || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: exit code %d, %q", args, code, stderr)
		}
	}
}
