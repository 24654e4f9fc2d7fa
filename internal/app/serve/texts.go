package serve

import (
	"encoding/json"
	"errors"
	"strconv"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/data/layout"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// The fields of a text. "pair" is another name of "text_pair".
const (
	fieldText      = "text"
	fieldPair      = "text_pair"
	fieldOtherPair = "pair"
)

// textFields are the fields of an example of texts or of tokens.
var textFields = fieldNames{known: textNames, expected: textNames}

var textNames = []string{fieldText, fieldPair, fieldOtherPair, layout.InputIDs, layout.AttentionMask, layout.TokenTypeIDs}

// parseTexts reads a request whose examples are all texts or all tokens.
func (m *Model) parseTexts(f form, body []byte, l limits) (*request, error) {
	rows, f, err := rowsOf(f, body, l.examples, textFields)
	if err != nil {
		return nil, err
	}
	t, r, tokens := m.Texts, &request{form: f}, false
	pairs := make([]text.Pair, 0, len(rows))
	for i, row := range rows {
		pair, encoding, err := t.row(row, i, predict.Chooses(m.Renderer))
		if err != nil {
			return nil, err
		}
		if encoding == nil {
			if reason := predict.Refused(m.Renderer, t.Tokenizer, pair); reason != "" {
				return nil, badf("example %d: %s", i+1, reason)
			}
		}
		if given := encoding != nil; i == 0 {
			tokens = given
		} else if tokens != given {
			return nil, badf("example %d and the first one are a text and tokens; expected the same for all", i+1)
		}
		if tokens {
			r.examples = append(r.examples, t.example(*encoding, nil))
		} else {
			pairs = append(pairs, pair)
		}
	}
	if tokens {
		r.raw = f == instances || f == inputs
		return r, nil
	}
	if d, ok := m.Renderer.(predict.Divider); ok {
		return r, t.divide(r, d, pairs, l)
	}
	for i, e := range predict.Encode(m.Renderer, t.Tokenizer, pairs, t.MaxLength) {
		if e.Truncated && l.refuseLong {
			return nil, badf("example %d has more than %d tokens, and this server does not cut texts", i+1, t.MaxLength)
		}
		r.examples = append(r.examples, t.example(e, &pairs[i]))
	}
	return r, nil
}

// divide sets the examples of a request to the parts of texts. All of them count as examples.
func (t *Texts) divide(r *request, d predict.Divider, pairs []text.Pair, l limits) error {
	for i := range pairs {
		left := l.examples - len(r.examples)
		if left < 1 {
			return badf("the first %d examples have %d windows of contexts, or choices, the most of a request; expected fewer: send several requests", i, l.examples)
		}
		divided, err := d.Divide(pairs[i], left)
		if errors.Is(err, fault.Usage) {
			return badf("example %d: %v", i+1, err)
		}
		if err != nil {
			return err
		}
		if divided.Cut && l.refuseLong {
			return badf("example %d: the question, or a choice with its text, is too long, and this server does not cut texts", i+1)
		}
		for _, e := range divided.Parts {
			r.examples = append(r.examples, t.example(e, &pairs[i]))
		}
		r.divided = append(r.divided, divided)
	}
	return nil
}

// row reads an example: a text, or an object of texts or of tensors. With choices, the second text may be
// a list of them.
func (t *Texts) row(row row, number int, choices bool) (pair text.Pair, tokens *text.Encoding, err error) {
	if kindOf(row.value) == '"' {
		pair.A, err = stringOf(row.value, fieldText, number)
		return pair, nil, err
	}
	fields, err := row.object(number, textFields)
	if err != nil {
		return pair, nil, err
	}
	if fields[layout.InputIDs] != nil {
		tokens, err = t.tokens(fields, number)
		return pair, tokens, err
	}
	if fields[fieldText] == nil {
		return pair, nil, badf("example %d has no field %q", number+1, fieldText)
	}
	if pair.A, err = stringOf(fields[fieldText], fieldText, number); err != nil {
		return pair, nil, err
	}
	if fields[fieldPair] != nil && fields[fieldOtherPair] != nil {
		return pair, nil, badf("example %d has both %q and %q; expected one of them", number+1, fieldPair, fieldOtherPair)
	}
	for _, name := range []string{fieldPair, fieldOtherPair} {
		if raw := fields[name]; raw != nil && string(raw) != "null" {
			if choices && kindOf(raw) == '[' {
				pair.B = string(raw)
			} else if pair.B, err = stringOf(raw, name, number); err != nil {
				return pair, nil, err
			}
			if pair.B == "" && t.Pairs != nil && *t.Pairs {
				return pair, nil, badf("example %d: %s", number+1, predict.EmptySecond)
			}
		}
	}
	return pair, nil, nil
}

// tokens reads the tensors of an example. Positions with the mask 0 are left out, as the model does.
func (t *Texts) tokens(fields map[string][]byte, number int) (*text.Encoding, error) {
	if len(fields) != 3 || fields[layout.AttentionMask] == nil || fields[layout.TokenTypeIDs] == nil {
		return nil, badf("example %d is given as tokens; expected %s", number+1, names([]string{layout.InputIDs, layout.AttentionMask, layout.TokenTypeIDs}))
	}
	read := func(name string, below int) (out []int32, err error) {
		shape, err := shapeOf(fields[name])
		if err == nil && len(shape) != 1 {
			err = badf("has %d axes; expected a list of numbers", len(shape))
		}
		if err == nil {
			out, err = flatten(fields[name], shape, func(token string) (int32, error) {
				v, err := strconv.ParseInt(token, 10, 32)
				if err != nil || v < 0 || v >= int64(below) {
					return 0, badf("has the value %s; expected whole numbers from 0 to %d", words.Clip(token, 60), below-1)
				}
				return int32(v), nil
			})
		}
		if err != nil {
			return nil, badf("example %d: %s %v", number+1, name, err)
		}
		return out, nil
	}
	ids, err := read(layout.InputIDs, t.Tokenizer.Vocab().Size())
	if err != nil {
		return nil, err
	}
	mask, err := read(layout.AttentionMask, 2)
	if err != nil {
		return nil, err
	}
	types, err := read(layout.TokenTypeIDs, 2)
	if err != nil {
		return nil, err
	}
	if len(mask) != len(ids) || len(types) != len(ids) {
		return nil, badf("example %d has %d ids, %d mask values and %d types; expected the same number of each", number+1, len(ids), len(mask), len(types))
	}
	var e text.Encoding
	for i, m := range mask {
		if m != 0 {
			e.IDs, e.TypeIDs = append(e.IDs, ids[i]), append(e.TypeIDs, types[i])
		}
	}
	if n := len(e.IDs); n < 1 || n > t.MaxLength {
		return nil, badf("example %d has %d tokens; expected 1 to %d", number+1, n, t.MaxLength)
	}
	return &e, nil
}

// stringOf returns the value of a field that is a text.
func stringOf(raw []byte, name string, number int) (string, error) {
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil || s == nil {
		return "", badf("example %d: %q is %s; expected a text in quotes", number+1, name, clip(raw))
	}
	return *s, nil
}
