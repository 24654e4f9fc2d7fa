package vfs

import (
	"errors"
	"strings"
	"testing"
)

func TestPathsWithScheme(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{Join("gs://b", "data", "x"), "gs://b/data/x"},
		{Join("gs://b/data/", "../x"), "gs://b/x"},
		{Join("data", "x"), "data/x"},
		{Clean("gs://b//data/"), "gs://b/data"},
		{Dir("gs://b/data/x"), "gs://b/data"},
		{Scheme("gs://b"), "gs"},
		{Join("hub:a/b@main", "x/../y"), "hub:a/b@main/y"},
		{Clean("hub:a//b/"), "hub:a/b"},
		{Dir("hub:a/b/x"), "hub:a/b"},
		{Scheme("hub:a/b"), "hub"},
		{Scheme("hub://a/b"), "hub"},
		{Scheme("./hub:a/b"), ""},
		{Scheme("gs:/b"), ""},
		{Scheme("data/gs://b"), ""},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, expected %q", tt.got, tt.want)
		}
	}
	if _, err := Abs("gs:/b/data"); err == nil || !strings.Contains(err.Error(), "expected gs://b/data") {
		t.Errorf("a lost slash: error is %v", err)
	}
	if path, err := Abs("gs://b/data"); err != nil || path != "gs://b/data" || !IsAbs(path) {
		t.Errorf("%q, %v", path, err)
	}
	if _, err := Stat("s3://b/x"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("an unknown scheme: error is %v", err)
	}
	m := &mounted{name: "m"}
	defer Mount("mem://", m)()
	if got, _ := on("open", "mem://x/y"); got != m {
		t.Error("a mounted scheme is not used")
	}
	if got, _ := on("open", "x"); got != (OS{}) {
		t.Error("a local path is taken for one with a scheme")
	}
}
