package receipt

import (
	"bytes"
	"crypto/ed25519"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// made is a receipt of a file and its data.
func made() *Statement {
	sum := strings.Repeat("0a", 32)
	return &Statement{Type: statementType, PredicateType: predicateType, Subject: []Resource{resource("checkpoints/ckpt-1.index", sum)},
		Predicate: Predicate{Data: []Resource{resource("train.tfrecord", sum)}, Folder: "data", Processes: []Process{{Gorbit: "0.1.0", Cores: 2}}, Metrics: []string{sum[:32]}}}
}

// sealed returns the content of the receipt's file, signed by the key that a byte makes; 0 is none.
func sealed(t testing.TB, by byte) []byte {
	t.Helper()
	var key ed25519.PrivateKey
	if by != 0 {
		key = keyOf(by)
	}
	content, err := made().Seal(key)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func keyOf(by byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{by}, ed25519.SeedSize))
}

// TestParse refuses what is not one receipt, of files in their folders.
func TestParse(t *testing.T) {
	good := string(sealed(t, 0))
	if _, signed, err := Open([]byte(good), nil); err != nil || signed {
		t.Errorf("%v, %v", signed, err)
	}
	for want, content := range map[string]string{
		"there is more after its end": good + good,
		`names "../train.tfrecord"`:   strings.Replace(good, "train.tfrecord", "../train.tfrecord", 1),
		`names "/checkpoints`:         strings.Replace(good, `"checkpoints`, `"/checkpoints`, 1),
		`with the SHA-256 "0a0a`:      strings.Replace(good, "0a0a", "0a", 1),
		"its types are":               strings.Replace(good, "/v1", "/v2", 1),
		"is no receipt: ":             good[:len(good)/2],
	} {
		if _, _, err := Open([]byte(content), nil); fault.Of(err) != fault.Damaged || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; expected %q", err, want)
		}
	}
}

// FuzzOpen holds that a receipt which is accepted names files in their folders and is read again as it is
// written, and that none passes for signed by a key that signed nothing.
func FuzzOpen(f *testing.F) {
	f.Add(sealed(f, 0))
	f.Add(sealed(f, 1))
	f.Add([]byte(`{"payloadType":"application/vnd.in-toto+json","payload":"e30=","signatures":[{"keyid":"","sig":""}]}`))
	other := keyOf(2).Public().(ed25519.PublicKey)
	f.Fuzz(func(t *testing.T, content []byte) {
		if _, _, err := Open(content, other); err == nil {
			t.Errorf("%q passes for signed", content)
		}
		s, _, err := Open(content, nil)
		if err != nil {
			return
		}
		for _, r := range append(s.Subject, s.Predicate.Data...) {
			if !filepath.IsLocal(r.Name) || len(r.Digest["sha256"]) != 64 {
				t.Errorf("accepted %+v", r)
			}
		}
		first, err := s.Seal(nil)
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := Open(first, nil)
		if err != nil {
			t.Fatalf("%v, of what it wrote itself: %s", err, first)
		}
		if second, err := again.Seal(nil); err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s is read and written as %s, %v", first, second, err)
		}
	})
}
