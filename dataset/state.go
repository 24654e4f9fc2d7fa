package dataset

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const stateVersion = 1

// State is a position in a Dataset. Its size does not depend on the number of records, and it can be
// stored with encoding/json.
type State struct {
	Version  int   `json:"version"`
	Epoch    int64 `json:"epoch"`    // completed epochs
	Position int64 `json:"position"` // records drawn in the current epoch
	// Carried are the records among them that no batch has taken yet, which is possible if the size
	// of batches is fixed: how many draws before Position each was drawn, the oldest first, such as
	// "17,16,3".
	Carried  string   `json:"carried,omitempty"`
	Skipped  int64    `json:"skipped"` // damaged records skipped so far, counted each time
	Settings Settings `json:"settings"`
}

// Settings are the settings that a position depends on. With other settings, the same
// numbers would mean other examples.
type Settings struct {
	Files     string `json:"files"` // hash of the files' names, sizes and numbers of records
	Records   int64  `json:"records"`
	Seed      uint64 `json:"seed"`
	BatchSize int    `json:"batch_size"`
	// Growth are the stages of Config.Growth as a text; "" without them.
	Growth        string  `json:"growth,omitempty"`
	DropRemainder bool    `json:"drop_remainder"`
	Shuffle       Shuffle `json:"shuffle"`
	Buffer        int     `json:"buffer"` // 0 unless the shuffle is ShuffleBuffer
	// Sampling says how records are drawn with replacement; "" without Sampling.
	Sampling string `json:"sampling,omitempty"`
	// ClassWeights are the weights by class as a text; "" without ClassWeights.
	ClassWeights string `json:"class_weights,omitempty"`
	// Layout is a JSON object of the layout's settings. In the JSON of Settings these stand after
	// the other fields.
	Layout string `json:"-"`
}

// plainSettings are Settings without their layout's.
type plainSettings Settings

// MarshalJSON implements json.Marshaler.
func (s Settings) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(plainSettings(s))
	if err != nil || len(s.Layout) <= len("{}") {
		return text, err
	}
	return append(append(text[:len(text)-1], ','), s.Layout[1:]...), nil
}

// UnmarshalJSON implements json.Unmarshaler. What is no other field is of the layout.
func (s *Settings) UnmarshalJSON(text []byte) error {
	var plain plainSettings
	if err := json.Unmarshal(text, &plain); err != nil {
		return err
	}
	known, err := json.Marshal(plain)
	if err != nil {
		return err
	}
	own := layoutValues(string(known))
	var layout bytes.Buffer
	err = eachValue(text, func(key string, value json.RawMessage) error {
		if _, ok := own[key]; ok {
			return nil
		}
		return appendValue(&layout, key, value)
	})
	if err != nil {
		return err
	}
	*s = Settings(plain)
	s.Layout = closeObject(&layout)
	return nil
}

// layoutSettings returns a layout's settings as a JSON object.
func layoutSettings(settings []Setting) (string, error) {
	var b bytes.Buffer
	for _, l := range settings {
		if err := appendValue(&b, l.Key, l.Value); err != nil {
			return "", fmt.Errorf("layout's setting %s: %w", l.Key, err)
		}
	}
	return closeObject(&b), nil
}

// layoutValues returns the JSON of each value of a JSON object, nothing where it is none.
func layoutValues(object string) map[string]string {
	values := map[string]string{}
	err := eachValue([]byte(object), func(key string, value json.RawMessage) error {
		values[key] = string(value)
		return nil
	})
	if err != nil {
		return map[string]string{}
	}
	return values
}

// eachValue calls a function for each value of a JSON object, in order.
func eachValue(object []byte, each func(key string, value json.RawMessage) error) error {
	d := json.NewDecoder(bytes.NewReader(object))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
		if err := each(key.(string), value); err != nil { // the keys of objects are strings
			return err
		}
	}
	return nil
}

// appendValue appends a key with its value to a JSON object that closeObject ends.
func appendValue(b *bytes.Buffer, key string, value any) error {
	name, err := json.Marshal(key)
	if err != nil {
		return err
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	b.WriteByte("{,"[min(b.Len(), 1)])
	b.Write(name)
	b.WriteByte(':')
	b.Write(text)
	return nil
}

// closeObject returns a JSON object, "" where nothing was appended to it.
func closeObject(b *bytes.Buffer) string {
	if b.Len() == 0 {
		return ""
	}
	return b.String() + "}"
}

// differences returns a clause for each difference between s and now.
func (s Settings) differences(now Settings, layout []Setting) []string {
	var d []string
	differ := func(what string, was, is any) {
		if was != is {
			d = append(d, fmt.Sprintf("%s was %v and is %v", what, was, is))
		}
	}
	differ("the number of records", s.Records, now.Records)
	if s.Files != now.Files && s.Records == now.Records {
		d = append(d, "the files have different names, sizes or numbers of records")
	}
	differ("the seed", s.Seed, now.Seed)
	differ("the batch size", s.BatchSize, now.BatchSize)
	differ("the growth of batches", cmp.Or(s.Growth, "not set"), cmp.Or(now.Growth, "not set"))
	differ("dropping the remainder of an epoch", s.DropRemainder, now.DropRemainder)
	differ("the shuffle", quote(s.Shuffle), quote(now.Shuffle))
	if s.Shuffle == now.Shuffle {
		differ("the shuffle buffer", s.Buffer, now.Buffer)
	}
	differ("the sampling", cmp.Or(s.Sampling, "uniform"), cmp.Or(now.Sampling, "uniform"))
	differ("the list of class weights", cmp.Or(s.ClassWeights, "not set"), cmp.Or(now.ClassWeights, "not set"))
	was, is := layoutValues(s.Layout), layoutValues(now.Layout)
	for _, l := range layout {
		if !l.Padding {
			differ(l.Name, cmp.Or(was[l.Key], "not set"), is[l.Key])
		}
		delete(was, l.Key)
	}
	for _, key := range slices.Sorted(maps.Keys(was)) {
		differ(key, was[key], "not set")
	}
	return d
}

func quote[T ~string](s T) string { return fmt.Sprintf("%q", string(s)) }

// maxEpoch keeps a malicious state from overflowing the counter.
const maxEpoch = 1 << 53

// check returns an error unless a Dataset with the given settings can continue from s.
func (s State) check(now Settings, layout []Setting, fitted bool) error {
	if s.Version != stateVersion {
		return &StateError{Differences: []string{fmt.Sprintf("its version is %d; expected %d", s.Version, stateVersion)}, Invalid: true}
	}
	if d := s.Settings.differences(now, layout); len(d) > 0 {
		return &StateError{Differences: d}
	}
	var d []string
	if s.Epoch < 0 || s.Epoch > maxEpoch {
		d = append(d, fmt.Sprintf("its epoch is %d; expected 0 to %d", s.Epoch, int64(maxEpoch)))
	}
	if s.Skipped < 0 {
		d = append(d, fmt.Sprintf("it has skipped %d records; expected 0 or more", s.Skipped))
	}
	growth := parseGrowth(now.Growth)
	ends := func() int64 { _, at := now.walk(growth, s.Epoch, s.Position); return at }
	switch {
	case s.Position < 0 || s.Position > now.Records:
		d = append(d, fmt.Sprintf("its position is %d; expected 0 to %d", s.Position, now.Records))
	case !fitted && s.Position != now.Records && s.Position != ends():
		d = append(d, fmt.Sprintf("its position is %d; expected the end of a batch of %d", s.Position, now.sizeAt(growth, s.Epoch, s.Position)))
	default:
		if reason := s.checkCarried(fitted); reason != "" {
			d = append(d, reason)
		}
	}
	if len(d) > 0 {
		return &StateError{Differences: d, Invalid: true}
	}
	return nil
}

// String returns the position in words.
func (s State) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "epoch %d, record %d of %d", s.Epoch, s.Position, s.Settings.Records)
	if s.Carried != "" {
		fmt.Fprintf(&b, ", %d of them carried over", strings.Count(s.Carried, ",")+1)
	}
	if s.Skipped > 0 {
		fmt.Fprintf(&b, ", %d damaged records skipped", s.Skipped)
	}
	return b.String()
}
