package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// TestForgedNamesAreCut keeps messages about names that come from a file short and
// printable.
func TestForgedNamesAreCut(t *testing.T) {
	forged := strings.Repeat("\x00\xff\x1b[2J", 2000)
	for what, text := range map[string]string{
		"corrupt":  (&CorruptError{Path: "x.index", Tensor: forged, Offset: 3, Reason: "bad"}).Error(),
		"mismatch": (&MismatchError{Path: "x", Missing: []string{forged}, Wrong: []WrongTensor{{Name: forged}}}).Error(),
		"entry":    Entry{Name: forged}.String(),
	} {
		if len(text) > 3000 || strings.ContainsAny(text, "\x00\x1b") || !utf8.ValidString(text) {
			t.Errorf("%s: a message of %d bytes: %.80q", what, len(text), text)
		}
	}
	if got := (Entry{Name: "model/layers/0/kernel"}).String(); !strings.HasPrefix(got, "model/layers/0/kernel ") {
		t.Errorf("a usual name became %q", got)
	}
}

// TestV1IsNamed opens a checkpoint of TensorFlow 1's V1 format, which is a table in one
// file.
func TestV1IsNamed(t *testing.T) {
	prefix := writeSmall(t)
	path := filepath.Join(t.TempDir(), "model.ckpt")
	if err := os.Rename(IndexPath(prefix), path); err != nil {
		t.Fatal(err)
	}
	_, _, err := OpenSource(path)
	if err == nil || !strings.Contains(err.Error(), "V1 format") || !strings.Contains(err.Error(), path+" "+path+"-v2") || errors.Is(err, fault.Damaged) {
		t.Errorf("error %v", err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), StateName), []byte("model_checkpoint_path: \"model.ckpt\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, of := OpenSource(filepath.Dir(path)); of == nil || of.Error() != err.Error() {
		t.Errorf("of its folder: error %v, expected %v", of, err)
	}
}
