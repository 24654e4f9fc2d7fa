package dataset

import (
	"fmt"
	"strings"
)

const stateVersion = 1

// State is a position in a Dataset. Its size does not depend on the data, and it can be
// stored with encoding/json.
type State struct {
	Version  int      `json:"version"`
	Epoch    int64    `json:"epoch"`    // completed epochs
	Position int64    `json:"position"` // records drawn in the current epoch
	Skipped  int64    `json:"skipped"`  // damaged records skipped so far, counted each time
	Settings Settings `json:"settings"`
}

// Settings are the settings that a position depends on. With other settings, the same
// numbers would mean other examples.
type Settings struct {
	Files          string  `json:"files"` // hash of the files' names, sizes and numbers of records
	Records        int64   `json:"records"`
	Seed           uint64  `json:"seed"`
	BatchSize      int     `json:"batch_size"`
	DropRemainder  bool    `json:"drop_remainder"`
	Shuffle        Shuffle `json:"shuffle"`
	Buffer         int     `json:"buffer"` // 0 unless the shuffle is ShuffleBuffer
	Packing        Packing `json:"packing"`
	RowLength      int     `json:"row_length"`
	FixedRowLength bool    `json:"fixed_row_length"`
	Truncate       bool    `json:"truncate"`
}

// differences returns a clause for each difference between s and now.
func (s Settings) differences(now Settings) []string {
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
	differ("dropping the remainder of an epoch", s.DropRemainder, now.DropRemainder)
	differ("the shuffle", quote(s.Shuffle), quote(now.Shuffle))
	if s.Shuffle == now.Shuffle {
		differ("the shuffle buffer", s.Buffer, now.Buffer)
	}
	differ("the packing", quote(s.Packing), quote(now.Packing))
	differ("the row length", s.RowLength, now.RowLength)
	differ("the fixed row length", s.FixedRowLength, now.FixedRowLength)
	differ("truncation", s.Truncate, now.Truncate)
	return d
}

func quote[T ~string](s T) string { return fmt.Sprintf("%q", string(s)) }

// maxEpoch keeps a malicious state from overflowing the counter.
const maxEpoch = 1 << 53

// check returns an error unless a Dataset with the given settings can continue from s.
func (s State) check(now Settings) error {
	if s.Version != stateVersion {
		return &StateError{[]string{fmt.Sprintf("its version is %d; expected %d", s.Version, stateVersion)}}
	}
	if d := s.Settings.differences(now); len(d) > 0 {
		return &StateError{d}
	}
	var d []string
	if s.Epoch < 0 || s.Epoch > maxEpoch {
		d = append(d, fmt.Sprintf("its epoch is %d; expected 0 to %d", s.Epoch, int64(maxEpoch)))
	}
	if s.Skipped < 0 {
		d = append(d, fmt.Sprintf("it has skipped %d records; expected 0 or more", s.Skipped))
	}
	switch b := int64(now.BatchSize); {
	case s.Position < 0 || s.Position > now.Records:
		d = append(d, fmt.Sprintf("its position is %d; expected 0 to %d", s.Position, now.Records))
	case s.Position%b != 0 && s.Position != now.Records:
		d = append(d, fmt.Sprintf("its position is %d; expected the end of a batch of %d", s.Position, b))
	}
	if len(d) > 0 {
		return &StateError{d}
	}
	return nil
}

// String returns the position in words.
func (s State) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "epoch %d, record %d of %d", s.Epoch, s.Position, s.Settings.Records)
	if s.Skipped > 0 {
		fmt.Fprintf(&b, ", %d damaged records skipped", s.Skipped)
	}
	return b.String()
}
