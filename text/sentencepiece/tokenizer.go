package sentencepiece

import (
	"fmt"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/text"
)

// MaxBytes is the maximum size of a .model file, far above that of any real one.
const MaxBytes = 128 << 20

// Load reads a .model file of at most MaxBytes and returns its tokenizer.
func Load(path string) (*text.Tokenizer, error) {
	data, err := vfs.ReadBounded(path, MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	m, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer %s: %w", path, err)
	}
	return m.Tokenizer(), nil
}

// Tokenizer returns the tokenizer of the model. A text begins with [CLS] and ends with [SEP], if the model
// has both; or else it begins with the model's control symbol for the beginning, if it has one (<s>), and
// ends with that for the end (</s>). Of a pair each text ends so.
func (m *Model) Tokenizer() *text.Tokenizer {
	names := make([]string, len(m.proto.pieces))
	for i, p := range m.proto.pieces {
		names[i] = p.text
	}
	roles := text.NoRoles()
	roles.Unk = m.unknown
	roles.Pad = m.named(m.proto.pad, "<pad>", "[PAD]")
	roles.Mask = m.named("<mask>", "[MASK]")
	roles.Cls, roles.Sep = m.named("[CLS]"), m.named("[SEP]")
	template := text.BertTemplate(roles.Cls, roles.Sep)
	if roles.Cls < 0 || roles.Sep < 0 {
		roles.Cls, roles.Sep = m.control(m.proto.bos), m.control(m.proto.eos)
		begin, end := special(roles.Cls), special(roles.Sep)
		template = text.Template{
			Single: text.Frame{Before: begin, After: end},
			Pair:   text.Frame{Before: begin, Between: end, After: end},
		}
	}
	return text.New(text.Parts{Algorithm: algorithm{m}, Vocab: text.NewVocab(names), Template: template, Roles: roles})
}

// named returns the id of the first piece that there is, or -1.
func (m *Model) named(names ...string) int32 {
	for _, name := range names {
		if id, ok := m.ids[name]; ok {
			return id
		}
	}
	return -1
}

// control returns the id of a control symbol, or -1.
func (m *Model) control(name string) int32 {
	if id, ok := m.ids[name]; ok && m.proto.pieces[id].kind == control {
		return id
	}
	return -1
}

// special returns the special tokens of an id, none if it is -1.
func special(id int32) []text.Special {
	if id < 0 {
		return nil
	}
	return []text.Special{{ID: id}}
}

// algorithm is the text.Algorithm of a model.
type algorithm struct{ m *Model }

// AppendFirst implements text.Algorithm.
func (a algorithm) AppendFirst(dst []int32, s string, most int) (ids []int32, more int) {
	begin := len(dst)
	dst = a.m.AppendIDs(dst, s)
	if n := len(dst) - begin - most; n > 0 {
		return dst[:begin+most], n
	}
	return dst, 0
}

// AppendTokens implements text.Algorithm.
func (a algorithm) AppendTokens(dst []text.Token, s string, most int) (tokens []text.Token, more int) {
	all := a.m.Append(nil, s)
	for _, t := range all[:min(len(all), most)] {
		dst = append(dst, text.Token{ID: t.ID, Span: text.Span{Start: t.Start, End: t.End}})
	}
	return dst, max(0, len(all)-most)
}

// AppendWord implements text.Algorithm. Models put a space before a text themselves.
func (a algorithm) AppendWord(dst []int32, word string) []int32 { return a.m.AppendIDs(dst, word) }

// Continues implements text.Algorithm.
func (a algorithm) Continues(token string) bool {
	return !a.m.proto.spaceAfter && !strings.HasPrefix(token, space)
}

// Decode implements text.Algorithm. Unknown tokens are what the model says, mostly ⁇.
func (a algorithm) Decode(ids []int32, specials bool) string { return a.m.decode(ids, specials) }
