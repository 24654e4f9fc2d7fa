package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSole sends a run to a place twice at once, and to another place.
func TestSole(t *testing.T) {
	run, log := t.TempDir(), slog.New(slog.DiscardHandler)
	release, err := sole(run, log, "acme/reviews", "main")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sole(run, log, "acme/reviews", "main"); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%s is being sent to acme/reviews main by process %d on ", run, os.Getpid())) {
		t.Errorf("the second says %v", err)
	}
	other, err := sole(run, log, "acme/reviews", "next")
	if err != nil {
		t.Fatal(err)
	}
	other()
	release()
	again, err := sole(run, log, "acme/reviews", "main")
	if err != nil {
		t.Fatal(err)
	}
	again()
	if left, err := os.ReadDir(run); err != nil || len(left) > 0 {
		t.Errorf("left are %v, error %v", left, err)
	}
	if _, err := sole(filepath.Join(run, "none"), log, "acme/reviews"); err != nil {
		t.Errorf("a run that is not there: %v", err)
	}
}
