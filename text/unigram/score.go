package unigram

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// score returns the number that the library reads from JSON, which is not always the nearest one: its reader
// takes the first digits as an integer and multiplies or divides that by a power of ten. Sums of scores
// decide between ways to split a word, so the last bit matters.
func score(number string) (float64, error) {
	if _, err := strconv.ParseFloat(number, 64); err != nil {
		return 0, fmt.Errorf("score %s: %w", number, err)
	}
	mantissa, power, _ := strings.Cut(strings.ToLower(number), "e")
	exponent := 0
	if power != "" {
		var err error
		if exponent, err = strconv.Atoi(power); err != nil {
			return 0, fmt.Errorf("score %s: %w", number, err)
		}
	}
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := uint64(0)
	full := false
	for i, c := range whole + fraction {
		d := uint64(c - '0')
		if full = full || digits > (math.MaxUint64-d)/10; full {
			if i < len(whole) {
				exponent++
			}
			continue
		}
		digits = digits*10 + d
		if i >= len(whole) {
			exponent--
		}
	}
	f := scaled(float64(digits), exponent)
	if negative {
		f = -f
	}
	return f, nil
}

// scaled returns f times a power of ten, as the library computes it.
func scaled(f float64, exponent int) float64 {
	const most = 308
	for ; exponent < -most && f != 0; exponent += most {
		f /= 1e308
	}
	if f == 0 {
		return 0
	}
	if exponent < 0 {
		return f / power(-exponent)
	}
	return f * power(min(exponent, most))
}

// power returns the number that is nearest to a power of ten.
func power(n int) float64 {
	f, _ := strconv.ParseFloat("1e"+strconv.Itoa(n), 64)
	return f
}
