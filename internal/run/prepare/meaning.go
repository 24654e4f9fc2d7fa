package prepare

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/layout"
	"github.com/gorbit-ml/gorbit/internal/data/tokenizers"
	"github.com/gorbit-ml/gorbit/internal/exec/launch"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/params"
	"github.com/gorbit-ml/gorbit/train/task"
)

// Meaning is what the numbers of records stand for, as far as a manifest says it.
type Meaning struct {
	// Manifest is that of the records.
	Manifest *convert.Manifest
	// features are the records' names of the graph's features, as in data.features.
	features map[string]string
}

// of returns what a manifest says of a feature of the graph, or nil.
func (m Meaning) of(f graphs.Feature) *convert.Feature {
	return m.Manifest.Feature(cmp.Or(m.features[f.Name], f.Name))
}

// takesText reports whether a graph takes tokens of the data's vocabulary.
func (m Meaning) takesText(c *graphs.Contract) bool {
	return m.Manifest.HasVocab() && (TakesTokens(c) || slices.ContainsFunc(c.Features, func(f graphs.Feature) bool {
		made := m.of(f)
		return made != nil && made.Kind == convert.KindText
	}))
}

// names returns the labels and categories that a graph takes, in words, or "" if there are none.
func (m Meaning) names(c *graphs.Contract) string {
	if len(m.Manifest.Labels) > 0 && c.Label() != nil {
		return "labels " + strings.Join(m.Manifest.Labels, ", ")
	}
	for _, f := range c.Features {
		if made := m.of(f); made != nil && len(made.Categories) > 0 {
			return fmt.Sprintf("categories of %s: %s", made.Name, strings.Join(made.Categories, ", "))
		}
	}
	return ""
}

// NamesOf returns the checksum of what the numbers that a graph takes mean by a manifest. A run may not
// change any of it. The features are those of data.features, and the manifest may be nil.
func NamesOf(manifest *convert.Manifest, features map[string]string, c *graphs.Contract) loop.Names {
	if manifest == nil {
		return ""
	}
	m := Meaning{manifest, features}
	var of struct {
		Labels     []string
		Categories map[string][]string
		Tokenizer  []any
	}
	if c.Label() != nil {
		of.Labels = manifest.Labels
	}
	for _, f := range c.Features {
		if made := m.of(f); f.Make == "" && made != nil && len(made.Categories) > 0 {
			if of.Categories == nil {
				of.Categories = map[string][]string{}
			}
			of.Categories[f.Name] = made.Categories
		}
	}
	if m.takesText(c) {
		v := manifest.Vocab // whose tokens vocab.txt has
		if v.Kept() != tokenizers.Vocab {
			of.Tokenizer = []any{v.SHA256}
		} else {
			of.Tokenizer = []any{v.Lowercase, v.StripAccents, v.LiteralSpecials, v.Unclean, v.JoinIdeographs, v.MaxWordChars}
		}
	}
	text, err := json.Marshal(of)
	if err != nil || of.Labels == nil && of.Categories == nil && of.Tokenizer == nil {
		return ""
	}
	return loop.Names(fmt.Sprintf("%x", sha256.Sum256(text)))
}

// Difference is what numbers mean there and here, and how to convert the data to mean the same.
type Difference struct{ What, Mend string }

// Differences lists what numbers that a graph takes mean in the data that it learned from, there, and
// no longer in other data, here.
func Differences(there, here Meaning, c *graphs.Contract) []Difference {
	var out []Difference
	labels := c.Label() != nil
	for _, f := range c.Features {
		was, is := there.of(f), here.of(f)
		if f.Make != "" || was == nil || is == nil {
			continue
		}
		if f.Role == graphs.RoleLabel && len(was.Categories) > 0 && len(is.Categories) > 0 {
			labels = false
		}
		if most := f.Classes(); most > 0 && (f.Role == graphs.RoleLabel && len(is.Categories) != most || len(is.Categories) > most) {
			continue // that is reported as it is
		}
		out = append(out, otherFeature(was, is)...)
	}
	if was, is := there.Manifest.Labels, here.Manifest.Labels; labels && len(was) > 0 && len(is) > 0 {
		if what := task.FirstDifference("label", was, is); what != "" {
			out = append(out, Difference{what, inOrder("--labels ", was, is)})
		}
	}
	if was, is := there.Manifest.Columns, here.Manifest.Columns; was.Pair != "" && was.Text == is.Pair && was.Pair == is.Text {
		out = append(out, Difference{fmt.Sprintf("the first text of a pair is %s there and %s here", was.Text, is.Text),
			fmt.Sprintf("convert the data with --text-column %s --pair-column %s", launch.Quote(was.Text), launch.Quote(was.Pair))})
	}
	if was, is := there.Manifest, here.Manifest; was.Columns.Chat != "" && is.Columns.Chat != "" && !reflect.DeepEqual(was.Chat, is.Chat) {
		out = append(out, Difference{"conversations have another chat template there than here", "convert the data with the chat template of the run's"})
	}
	if there.takesText(c) && here.takesText(c) {
		out = append(out, otherTokenizer(there.Manifest.Vocab, here.Manifest.Vocab)...)
	}
	return out
}

// otherFeature lists what differs in the meaning of a feature's numbers.
func otherFeature(was, is *convert.Feature) []Difference {
	schema := func(what string) []Difference {
		return []Difference{{what, "convert the data with the run's schema"}}
	}
	columns := slices.Sorted(slices.Values(was.Columns))
	switch {
	case was.Kind != is.Kind:
		return schema(fmt.Sprintf("feature %s is of kind %s there and %s here", is.Name, was.Kind, is.Kind))
	case !slices.Equal(was.Columns, is.Columns) && slices.Equal(columns, slices.Sorted(slices.Values(is.Columns))):
		return schema(fmt.Sprintf("feature %s has the columns %s there and %s here", is.Name, strings.Join(was.Columns, ", "), strings.Join(is.Columns, ", ")))
	case was.Missing != nil && is.Missing != nil && *was.Missing != *is.Missing:
		return schema(fmt.Sprintf("an empty cell of feature %s is %s there and %s here", is.Name, *was.Missing, *is.Missing))
	case was.Bare != is.Bare:
		return schema(fmt.Sprintf("texts of feature %s have special tokens either there or here", is.Name))
	case len(was.Categories) == 0 || len(is.Categories) == 0:
		return nil
	case was.Unknown != is.Unknown:
		return schema(fmt.Sprintf("feature %s has a category of all others either there or here", is.Name))
	}
	what := task.FirstDifference("category", was.Categories, is.Categories)
	if what == "" {
		return nil
	}
	return []Difference{{fmt.Sprintf("feature %s: %s", is.Name, what), inOrder("these categories in the schema: ", was.Categories, is.Categories)}}
}

// otherTokenizer lists the settings of a tokenizer that differ. Its tokens are compared elsewhere.
func otherTokenizer(was, is convert.Vocab) []Difference {
	var out []Difference
	differ := func(name string, was, is any, mend string) {
		if was != is {
			out = append(out, Difference{fmt.Sprintf("the tokenizer's %s is %v there and %v here", name, was, is), mend})
		}
	}
	const same = "convert the data with the same settings of the tokenizer"
	flag := func(name string, set bool) string {
		if set {
			return "convert the data with " + name
		}
		return "convert the data without " + name
	}
	differ("lowercase", was.Lowercase, is.Lowercase, flag("--cased", !was.Lowercase))
	if was.Lowercase == is.Lowercase {
		differ("strip_accents", was.StripAccents, is.StripAccents, same)
	}
	differ("literal_specials", was.LiteralSpecials, is.LiteralSpecials, flag("--literal-specials", was.LiteralSpecials))
	differ("unclean", was.Unclean, is.Unclean, same)
	differ("join_ideographs", was.JoinIdeographs, is.JoinIdeographs, same)
	differ("max_word_chars", was.MaxWordChars, is.MaxWordChars, same)
	return out
}

// inOrder says how to convert data to the names that a model learned.
func inOrder(how string, was, is []string) string {
	const most = 200
	list := strings.Join(was, ",")
	switch {
	case len(list) > most:
		return fmt.Sprintf("convert the data with the same %d names in the same order", len(was))
	case !slices.Equal(slices.Sorted(slices.Values(was)), slices.Sorted(slices.Values(is))):
		return "convert data with the names " + strings.Join(was, ", ")
	case strings.HasPrefix(how, "--"):
		list = launch.Quote(list)
	}
	return "convert the data with " + how + list
}

// RunMeaning reports data whose numbers do not mean what those meant that the run in a folder was
// trained with.
func (f *Preflight) RunMeaning(folder string) {
	was, err := runfolder.ReadManifest(folder)
	if err != nil {
		f.add("%v; expected what the run was trained with; restore it", err)
		return
	}
	there, here := Meaning{was, f.params.Data.Features}, Meaning{f.records.Manifest, f.params.Data.Features}
	if prefix, state, err := runfolder.Newest(folder, f.contract.State); err == nil && prefix != "" && was != nil && here.Manifest != nil {
		saved := loop.NamesIn(state)
		if saved == NamesOf(here.Manifest, here.features, f.contract) && saved != NamesOf(was, there.features, f.contract) {
			f.log.Warn("the run's data.json has other labels, categories or settings of the tokenizer than the run was trained with; those of the data are right", "run", folder, "data", f.records.Dir)
			was, there.Manifest = here.Manifest, here.Manifest
		}
	}
	if began, err := params.Read(filepath.Join(folder, runfolder.Params)); err == nil {
		there.features = began.Data.Features
	}
	switch {
	case was == nil && here.Manifest != nil:
		if names := here.names(f.contract); names != "" {
			f.log.Warn("the run does not say which names its numbers have; those of the data are taken", "data", f.records.Dir, "names", names)
		}
	case was != nil && here.Manifest == nil:
		if names := there.names(f.contract); names != "" {
			f.log.Warn("the data does not say which names its numbers have; those of the run are taken", "data", f.records.Dir, "names", names)
		}
	case was != nil:
		for _, d := range f.differences(there) {
			f.add("the numbers in data %s do not mean what run %s learned: %s; %s", f.records.Dir, folder, d.What, d.Mend)
		}
	}
	f.runVocabulary(folder, was)
}

// Differences lists what numbers mean there and no longer in the data. Data that the graph refuses
// anyway are not compared.
func (f *Preflight) differences(there Meaning) []Difference {
	if loop.KnownTask(f.contract).CheckData(f.records.Manifest) != "" {
		return nil
	}
	return Differences(there, Meaning{f.records.Manifest, f.params.Data.Features}, f.contract)
}

// initMeaning reports initial weights that were trained on other names for the numbers of the data.
func (f *Preflight) initMeaning(local string, report *checkpoint.LoadReport) {
	there, err := meaningOf(folderOf(local))
	if err != nil {
		f.add("init %s: %v", f.params.Init, err)
		return
	}
	if there.Manifest == nil || f.records.Manifest == nil {
		return
	}
	if !fillsHead(report, f.contract) {
		there.Manifest.Labels = nil
		there.Manifest.Features = slices.DeleteFunc(there.Manifest.Features, func(made convert.Feature) bool { return made.Role == convert.RoleLabel })
	}
	for _, d := range f.differences(there) {
		if f.params.InitPartial {
			f.log.Warn("the initial weights learned other meanings of the data's numbers", "init", f.params.Init, "differs", d.What)
			continue
		}
		f.add("init %s learned other meanings of the numbers in data %s: %s; %s, or take the weights as a beginning only with --set init_partial=true", f.params.Init, f.records.Dir, d.What, d.Mend)
	}
}

// meaningOf returns what a run, or an exported model, says of the numbers that it learned from; without
// a manifest if it says nothing.
func meaningOf(folder string) (Meaning, error) {
	if p, err := params.Read(filepath.Join(folder, runfolder.Params)); err == nil {
		m, err := runfolder.ReadManifest(folder)
		return Meaning{m, p.Data.Features}, err
	}
	if !Exists(filepath.Join(folder, layout.DescriptionFile)) {
		return Meaning{}, nil
	}
	d, err := layout.Read(folder)
	if err != nil {
		return Meaning{}, err
	}
	if slices.IndexFunc(d.Labels, func(name string) bool { return name != strconv.Itoa(slices.Index(d.Labels, name)) }) < 0 {
		return Meaning{}, nil // it knew no names
	}
	return Meaning{Manifest: &convert.Manifest{Labels: d.Labels}}, nil
}

// fillsHead reports whether weights fill a variable beyond the encoder that has a place for each class
// of the graph's label.
func fillsHead(r *checkpoint.LoadReport, c *graphs.Contract) bool {
	label := c.Label()
	if label == nil {
		return false
	}
	n := int64(label.Classes())
	if last := len(label.Shape) - 1; n == 0 && last > 0 {
		n = label.Shape[last]
	}
	return slices.ContainsFunc(loop.WantedOf(c), func(w checkpoint.Wanted) bool {
		filled := slices.ContainsFunc(r.Matched, func(m checkpoint.Match) bool { return m.Name == w.Name })
		return filled && !strings.HasPrefix(w.Name, encoderPrefix) && len(w.Shape) > 0 && w.Shape[len(w.Shape)-1] == n
	})
}

// folderOf returns the folder of a run, of a model or of a file, given what init names.
func folderOf(init string) string {
	dir := init
	if !loop.IsDir(dir) {
		dir = filepath.Dir(init)
	}
	if filepath.Base(dir) == runfolder.Checkpoints {
		dir = filepath.Dir(dir)
	}
	return dir
}

// knownMask reports a vocabulary in which the token that the graph masks with is another one.
func (f *Preflight) knownMask() {
	m := f.records.Manifest
	if f.contract.Masking == nil || m.Vocab.File == "" {
		return
	}
	file, err := tokenizers.Open(vfs.Join(f.records.Dir, m.Vocab.File), text.Config{})
	if err != nil {
		return // vocabulary reports it
	}
	vocab, mask := file.Tokenizer.Vocab(), cmp.Or(file.Tokenizer.MaskToken(), text.Mask)
	if id := f.contract.Masking.MaskToken; int(id) < vocab.Size() && vocab.Token(id) != mask {
		f.add("data %s: token %d of the vocabulary is %q; expected %q, with which the graph masks; export with --data %[1]s", f.records.Dir, id, vocab.Token(id), mask)
	}
}
