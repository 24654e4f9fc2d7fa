package tokenizerjson

import (
	"encoding/json"

	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/text/bpe"
	"github.com/gorbit-ml/gorbit/text/unigram"
)

// models has for the type of each model in a tokenizer.json what reads it. bytes says that the
// pre-tokenizer ByteLevel is the last, so that a model may take the bytes of words.
var models = map[string]func(raw json.RawMessage, bytes bool) (text.Model, error){
	"BPE":     func(raw json.RawMessage, bytes bool) (text.Model, error) { return bpe.Read(raw, bytes) },
	"Unigram": func(raw json.RawMessage, _ bool) (text.Model, error) { return unigram.Read(raw) },
}
