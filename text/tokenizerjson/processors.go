package tokenizerjson

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gorbit-ml/gorbit/text"
)

// processor is what the post-processors of a file come to.
type processor struct {
	template text.Template
	framed   bool // the template is set
	// trims are the post-processors that take white space off spans; each says whether a space was put
	// before the text.
	trims []bool
}

func (p *processor) read(raw json.RawMessage, vocab *text.Vocab) error {
	name, err := typeOf(raw, "post-processor")
	if err != nil || name == "" {
		return err
	}
	switch name {
	case "Sequence":
		var in struct{ Processors []json.RawMessage }
		if err := options(raw, &in); err != nil {
			return err
		}
		for _, part := range in.Processors {
			if err := p.read(part, vocab); err != nil {
				return err
			}
		}
		return nil
	case "ByteLevel":
		b, err := newByteLevel(raw)
		if b.Trim {
			p.trims = append(p.trims, b.Prefix)
		}
		return err
	case "TemplateProcessing":
		return p.readTemplate(raw, vocab)
	case "BertProcessing", "RobertaProcessing":
		return p.readClassic(raw, name, vocab)
	}
	return unknown("post-processor", name)
}

func (p *processor) set(t text.Template) error {
	if p.framed {
		return errors.New("two post-processors add special tokens; expected one")
	}
	p.template, p.framed = t, true
	return nil
}

// pairOf is a token and its id, as an array.
type pairOf struct {
	token string
	id    int32
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *pairOf) UnmarshalJSON(raw []byte) error {
	return json.Unmarshal(raw, &[]any{&p.token, &p.id})
}

func (p *processor) readClassic(raw json.RawMessage, name string, vocab *text.Vocab) error {
	in := struct {
		Sep, Cls pairOf
		Trim     bool `json:"trim_offsets"`
		Prefix   bool `json:"add_prefix_space"`
	}{Trim: true, Prefix: true}
	if err := options(raw, &in); err != nil {
		return err
	}
	for _, t := range []pairOf{in.Sep, in.Cls} {
		if id, ok := vocab.ID(t.token); !ok || id != t.id {
			return fmt.Errorf("%s: token %q has the id %d; the vocabulary has another", name, t.token, t.id)
		}
	}
	if name == "BertProcessing" {
		return p.set(text.BertTemplate(in.Cls.id, in.Sep.id))
	}
	if in.Trim {
		p.trims = append(p.trims, in.Prefix)
	}
	begin, end := []text.Special{{ID: in.Cls.id}}, []text.Special{{ID: in.Sep.id}}
	return p.set(text.Template{
		Single: text.Frame{Before: begin, After: end},
		Pair:   text.Frame{Before: begin, Between: append(end[:1:1], end...), After: end},
	})
}

// templatePiece is a part of a template: a text or a special token.
type templatePiece struct {
	Sequence, SpecialToken *struct {
		ID   string `json:"id"`
		Type int32  `json:"type_id"`
	}
}

func (p *processor) readTemplate(raw json.RawMessage, vocab *text.Vocab) error {
	var in struct {
		Single, Pair []templatePiece
		Tokens       map[string]struct {
			ID     string
			IDs    []int32
			Tokens []string
		} `json:"special_tokens"`
	}
	if err := options(raw, &in); err != nil {
		return err
	}
	frame := func(pieces []templatePiece, texts []string) (f text.Frame, err error) {
		to, next := &f.Before, 0
		for _, piece := range pieces {
			switch {
			case piece.Sequence != nil && next < len(texts) && piece.Sequence.ID == texts[next]:
				if next == 0 {
					f.TypeA, to = piece.Sequence.Type, &f.Between
				} else {
					f.TypeB = piece.Sequence.Type
				}
				if next++; next == len(texts) {
					to = &f.After
				}
			case piece.SpecialToken != nil:
				special, ok := in.Tokens[piece.SpecialToken.ID]
				if !ok {
					return f, fmt.Errorf("TemplateProcessing: special token %q has no ids", piece.SpecialToken.ID)
				}
				for _, id := range special.IDs {
					if id < 0 || int(id) >= vocab.Size() {
						return f, fmt.Errorf("TemplateProcessing: special token %q has the id %d; the vocabulary has %d ids", piece.SpecialToken.ID, id, vocab.Size())
					}
					*to = append(*to, text.Special{ID: id, Type: piece.SpecialToken.Type})
				}
			default:
				return f, fmt.Errorf("TemplateProcessing: a template that is not known; expected each text once, A before B")
			}
		}
		if next < len(texts) {
			return f, fmt.Errorf("TemplateProcessing: a template without text %s", texts[next])
		}
		return f, nil
	}
	var t text.Template
	var err error
	if t.Single, err = frame(in.Single, []string{"A"}); err != nil {
		return err
	}
	if t.Pair, err = frame(in.Pair, []string{"A", "B"}); err != nil {
		return err
	}
	return p.set(t)
}

// trim takes white space off the spans of tokens, as ByteLevel's post-processor does; blank says how many
// spaces each token begins and ends with.
func trim(s string, t *text.Token, first, prefix bool, leading, trailing int) {
	if leading > 0 {
		if (first || t.Start == 0) && prefix && leading == 1 {
			leading = 0
		}
		t.Start = min(advance(s, t.Start, leading), t.End)
	}
	if trailing > 0 {
		t.End = max(retreat(s, t.End, trailing), t.Start)
	}
}
