package bpe

// Space is how a space is named in the alphabet of byte-level tokens.
const Space = 'Ġ'

// alphabet has the character that each byte is named by: itself if it can be seen, and one from U+0100 on
// otherwise.
var alphabet = func() (out [256]rune) {
	next := rune(256)
	for c := range out {
		switch {
		case '!' <= c && c <= '~' || 0xa1 <= c && c <= 0xac || 0xae <= c:
			out[c] = rune(c)
		default:
			out[c] = next
			next++
		}
	}
	return out
}()

// bytesOf has the byte of each character of the alphabet, plus one.
var bytesOf = func() (out [256 + 68]uint16) {
	for c, r := range alphabet {
		out[r] = uint16(c) + 1
	}
	return out
}()

func byteOf(r rune) (byte, bool) {
	if r < 0 || int(r) >= len(bytesOf) || bytesOf[r] == 0 {
		return 0, false
	}
	return byte(bytesOf[r] - 1), true
}

// Char returns the character that a byte is named by.
func Char(c byte) rune { return alphabet[c] }

// Alphabet returns the characters that bytes are named by, in the order of the bytes.
func Alphabet() [256]rune { return alphabet }

// AppendBytes appends the bytes that a byte-level token stands for. A token with another character stands
// for its own.
func AppendBytes(dst []byte, token string) []byte {
	begin := len(dst)
	for _, r := range token {
		c, ok := byteOf(r)
		if !ok {
			return append(dst[:begin], token...)
		}
		dst = append(dst, c)
	}
	return dst
}
