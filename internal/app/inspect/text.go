package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// plain returns a name from a file as it is if a terminal can show it, and quoted otherwise.
func plain(name string) string {
	name = clip(name, 300)
	if q := strconv.Quote(name); q != `"`+name+`"` {
		return q
	}
	return name
}

// clip shortens a text.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func shapeText(shape []int64) string {
	return strings.ReplaceAll(fmt.Sprint(shape), " ", ",")
}
