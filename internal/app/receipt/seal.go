package receipt

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// payloadType is that of an in-toto statement in an envelope.
const payloadType = "application/vnd.in-toto+json"

// envelope is a DSSE envelope (https://github.com/secure-systems-lab/dsse).
type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     []byte      `json:"payload"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid"` // the SHA-256 of the public key
	Sig   []byte `json:"sig"`
}

// signed returns what a signature is of: the envelope's pre-authentication encoding.
func (e envelope) signed() []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(e.PayloadType), e.PayloadType, len(e.Payload), e.Payload)
}

// Seal returns the content of a receipt's file: the statement, or its envelope if there is a key.
func (s *Statement) Seal(key ed25519.PrivateKey) ([]byte, error) {
	content, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return nil, err
	}
	if key != nil {
		e := envelope{PayloadType: payloadType, Payload: content}
		e.Signatures = []signature{{keyID(key.Public().(ed25519.PublicKey)), ed25519.Sign(key, e.signed())}}
		if content, err = json.MarshalIndent(e, "", " "); err != nil {
			return nil, err
		}
	}
	return append(content, '\n'), nil
}

func keyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:])
}

// Open reads the content of a receipt's file. If there is a key, it must be signed by it; otherwise signed
// says whether there is a signature, which was not checked.
func Open(content []byte, key ed25519.PublicKey) (s *Statement, signed bool, err error) {
	var e envelope
	if json.Unmarshal(content, &e) != nil || e.PayloadType == "" {
		if key != nil {
			return nil, false, fault.Damagedf("is not signed; expected a signature by the key %s", keyID(key))
		}
		s, err = Parse(content)
		return s, false, err
	}
	if e.PayloadType != payloadType {
		return nil, true, fault.Damagedf("is an envelope of type %q; expected %q", e.PayloadType, payloadType)
	}
	if key != nil {
		valid := false
		for _, sig := range e.Signatures {
			valid = valid || ed25519.Verify(key, e.signed(), sig.Sig)
		}
		if !valid {
			return nil, true, fault.Damagedf("has no valid signature by the key %s", keyID(key))
		}
	}
	s, err = Parse(e.Payload)
	return s, true, err
}

// ReadKey reads a key of Ed25519 from a PEM file: a private one, with its public half, or a public one
// alone.
func ReadKey(path string) (ed25519.PrivateKey, ed25519.PublicKey, error) {
	content, err := vfs.ReadBounded(path, 1<<16)
	if err != nil {
		return nil, nil, err
	}
	wrong := fault.Usagef("%s is no key of Ed25519 in PEM; make one with openssl genpkey -algorithm ed25519 -out key.pem, and its public half with openssl pkey -in key.pem -pubout", path)
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, nil, wrong
	}
	if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		if private, ok := key.(ed25519.PrivateKey); ok {
			return private, private.Public().(ed25519.PublicKey), nil
		}
	}
	if key, err := x509.ParsePKIXPublicKey(block.Bytes); err == nil {
		if public, ok := key.(ed25519.PublicKey); ok {
			return nil, public, nil
		}
	}
	return nil, nil, wrong
}
