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

// thousands formats a count with commas, such as 1,234,567.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// count formats a count with a noun, such as "2 files".
func count(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return thousands(n) + " " + thing
}

// bytesText formats a size, such as 1.2 MB.
func bytesText(n int64) string {
	x, units := float64(n), []string{"B", "kB", "MB", "GB", "TB"}
	i := 0
	for ; x >= 1000 && i < len(units)-1; i++ {
		x /= 1000
	}
	return fmt.Sprintf("%.3g %s", x, units[i])
}
