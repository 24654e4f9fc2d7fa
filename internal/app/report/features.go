package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/convert"
)

// featureView is a feature of a split of data that a schema made.
type featureView struct {
	Name, Split, What                       string
	Records, Filled, Least, Mean, Most, Top string
}

// mostCategories is the number of categories of a feature that the page lists.
const mostCategories = 5

// describeFeatures lists the statistics of the features in the splits, in their order.
func (d *dataView) describeFeatures(m *convert.Manifest, splits []string) {
	for _, f := range m.Features {
		for _, name := range splits {
			if s := m.Splits[name].Features[f.Name]; s != nil {
				d.Features = append(d.Features, describeFeature(f, s, name))
			}
		}
	}
}

func describeFeature(f convert.Feature, s *convert.Statistics, split string) featureView {
	v := featureView{Name: f.Name, Split: split, Records: count(s.Records), What: strings.TrimSpace(fmt.Sprintf("%s %s", f.Role, f.Kind))}
	if len(f.Shape) > 0 {
		v.What += " " + f.Shape.String()
	}
	if s.Filled > 0 {
		v.Filled = count(s.Filled)
	}
	if s.Shortest != nil && s.Longest != nil {
		v.What += fmt.Sprintf(", %s to %s steps", count(*s.Shortest), count(*s.Longest))
	}
	if len(f.Categories) > 0 {
		v.Top = mostFrequent(f.Categories, s.Counts)
		return v // the ids of categories say nothing
	}
	for of, at := range map[*float64]*string{s.Min: &v.Least, s.Mean: &v.Mean, s.Max: &v.Most} {
		if of != nil {
			*at = value(*of)
		}
	}
	return v
}

// mostFrequent names the most frequent categories, with their shares.
func mostFrequent(names []string, counts []int64) string {
	var all int64
	var order []int
	for i, n := range counts {
		all += n
		if i < len(names) && n > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(counts[b], counts[a]) })
	var said []string
	for _, i := range first(mostCategories, order) {
		said = append(said, fmt.Sprintf("%s %s", clip(names[i], 40), percent(float64(counts[i])/float64(all))))
	}
	out := strings.Join(said, ", ")
	if left := len(names) - len(said); left > 0 {
		out += fmt.Sprintf(", %d more", left)
	}
	return out
}
