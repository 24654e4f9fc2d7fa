package words

import "testing"

func TestFormat(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{Thousands(0), "0"}, {Thousands(999), "999"}, {Thousands(1000), "1,000"}, {Thousands(1234567), "1,234,567"},
		{Thousands(-999), "-999"}, {Thousands(-123456), "-123,456"},
		{Count(1, "file"), "1 file"}, {Count(0, "file"), "0 files"}, {Count(2000, "file"), "2,000 files"},
		{Bytes(0), "0 B"}, {Bytes(999), "999 B"}, {Bytes(1200), "1.2 kB"}, {Bytes(1e13), "10 TB"}, {Bytes(5e15), "5e+03 TB"},
		{Scaled(2e9, "", "k", "M", "G"), "2 G"}, {Scaled(12, "", "k"), "12"},
	} {
		if tt.got != tt.want {
			t.Errorf("%q; expected %q", tt.got, tt.want)
		}
	}
}
