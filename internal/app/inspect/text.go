package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/words"
)

// plain returns a name from a file as it is if a terminal can show it, and quoted otherwise.
func plain(name string) string {
	name = words.Clip(name, 300)
	if q := strconv.Quote(name); q != `"`+name+`"` {
		return q
	}
	return name
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func shapeText(shape []int64) string {
	return strings.ReplaceAll(fmt.Sprint(shape), " ", ",")
}
