package predict

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/generate"
	"github.com/gorbit-ml/gorbit/text/chat"
)

func TestMakerValidate(t *testing.T) {
	id := func(n int32) *int32 { return &n }
	good := Maker{MaxLength: 8, VocabSize: 9, SlotBytes: 4, SourceLength: 6, SourceSlotBytes: 4, Start: 1, EOSTokenIDs: []int32{8}, BadWordsIDs: [][]int32{{2, 3}}, ForcedEOSTokenID: id(8)}
	for _, tt := range []struct {
		change func(*Maker)
		want   string
	}{
		{func(*Maker) {}, ""},
		{func(m *Maker) { m.SourceLength, m.SourceSlotBytes = 0, 0 }, ""},
		{func(m *Maker) { m.MaxLength = 1 }, "greatest length is 1; expected 2 or more"},
		{func(m *Maker) { m.VocabSize = 0 }, "vocabulary has 0 tokens"},
		{func(m *Maker) { m.SlotBytes = 0 }, "slot_bytes is 0 "},
		{func(m *Maker) { m.SourceSlotBytes = 0 }, "source_length is 6 and source_slot_bytes 0; expected both or neither"},
		{func(m *Maker) { m.SourceLength = -1 }, "source_length is -1"},
		{func(m *Maker) { m.Start = 9 }, "decoder_start_token_id has 9; expected 0 to 8"},
		{func(m *Maker) { m.EOSTokenIDs = []int32{3, -1} }, "eos_token_ids has -1; expected 0 to 8"},
		{func(m *Maker) { m.ForcedBOSTokenID = id(9) }, "forced_bos_token_id has 9"},
		{func(m *Maker) { m.BadWordsIDs = [][]int32{{1}, {}} }, "bad_words_ids has an empty word"},
	} {
		m := good
		tt.change(&m)
		err := m.Validate()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v: got %v, want %q", m, err, tt.want)
		}
	}
}

// What is written with an exported model is read as it was, and makes texts in the same way.
func TestMakerIsKept(t *testing.T) {
	first := int32(3)
	m := Maker{MaxLength: 8, VocabSize: 9, SlotBytes: 1 << 29, SourceLength: 6, SourceSlotBytes: 4, Start: 1, EOSTokenIDs: []int32{8, 7}, ForcedBOSTokenID: &first,
		BadWordsIDs: [][]int32{{2, 3}}, Prefix: "x ", Chat: &chat.Format{Template: "{{ messages[0].content }}", Tokens: map[string]string{"eos_token": "[SEP]"}}}
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var again Maker
	if err := json.Unmarshal(data, &again); err != nil {
		t.Fatal(err)
	}
	if got, _ := json.Marshal(again); string(got) != string(data) || again.Chat.Tokens["eos_token"] != "[SEP]" {
		t.Errorf("got %s, want %s", got, data)
	}
	// Caches of a GiB hold two tokens of a sequence, and so as many as one may have.
	if l := again.Limits(16, 0); l.Slots != 8 || l.SourceSlots != 96 || l.Rows != 16 || l.SourceLength != 6 {
		t.Errorf("limits are %+v", l)
	}
	if l := again.Limits(2, 50); l.Slots != 50 || l.SourceSlots != 50 {
		t.Errorf("with 50 tokens, limits are %+v", l)
	}
	m.SlotBytes = 4
	for _, c := range []struct {
		config         generate.Config
		slots, sources int
	}{
		{generate.Config{}, 128, 96},
		{generate.Config{MaxNewTokens: 3}, 64, 96},
		{generate.Config{MaxNewTokens: 99, NumBeams: 4}, 128, 24},
		{generate.Config{MaxLength: 5, NumReturnSequences: 16}, 80, 6},
	} {
		if l := m.LimitsFor(c.config, 16, 0); l.Slots != c.slots || l.SourceSlots != c.sources {
			t.Errorf("limits of %+v are %d and %d; expected %d and %d", c.config, l.Slots, l.SourceSlots, c.slots, c.sources)
		}
	}
	if l := m.LimitsFor(generate.Config{MaxNewTokens: 3}, 2, 50); l.Slots != 50 || l.SourceSlots != 50 {
		t.Errorf("with 50 tokens, limits are %+v", l)
	}
}
