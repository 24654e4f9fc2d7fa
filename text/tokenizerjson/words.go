package tokenizerjson

// Words returns a function that calls each for the words of a text: what the normalizer and the
// pre-tokenizer of the file make of it. Added tokens are not looked for, as when the library trains. If
// the pre-tokenizer ends with ByteLevel, words have the bytes of the text and not their names.
//
// Each goroutine needs a function of its own.
func (f *File) Words() (func(text string, each func(word string)), error) {
	p := &pipeline{raw: newAdded(nil, nil), normalized: newAdded(nil, nil)}
	if err := p.setSplit(f); err != nil {
		return nil, err
	}
	if n := len(p.split); n > 0 {
		if b, ok := p.split[n-1].(*byteLevel); ok {
			b.bytes = true
			p.direct = p.split.direct()
		}
	}
	w := &worker{}
	return func(text string, each func(word string)) {
		for _, c := range p.words(w, text, false) {
			if p.direct != nil {
				p.direct.each(w, c.s, each)
			} else {
				each(c.s)
			}
		}
	}, nil
}
