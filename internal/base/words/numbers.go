// Package words writes numbers for people, and finds the name that someone meant who typed another.
package words

import (
	"fmt"
	"math"
	"strings"
)

// Thousands writes a count with commas, such as 1,234,567.
func Thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Count writes a count with a noun, such as 2 files.
func Count(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return Thousands(n) + " " + thing
}

// Bytes writes a size, such as 1.2 MB.
func Bytes(n int64) string { return Scaled(float64(n), "B", "kB", "MB", "GB", "TB") }

// Scaled writes a number with the largest unit in which it is 1 or more. Each unit is 1000 times the
// one before.
func Scaled(x float64, units ...string) string {
	i := 0
	for ; x >= 1000 && i < len(units)-1; i++ {
		x /= 1000
	}
	return strings.TrimSpace(fmt.Sprintf("%.3g %s", x, units[i]))
}

// Clip returns a text of at most a given number of bytes: of a longer one the beginning, and "...".
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// Rounded returns v rounded to the given number of decimal places.
func Rounded(v float64, digits int) float64 {
	unit := math.Pow10(digits)
	return math.Round(v*unit) / unit
}
