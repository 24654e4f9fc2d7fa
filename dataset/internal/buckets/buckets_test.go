package buckets

import "testing"

func TestNext(t *testing.T) {
	l := Lengths{4, 8, 16}
	for _, tt := range []struct {
		name    string
		waiting []int32
		want    int
	}{
		{"enough short ones", []int32{16, 4, 8, 1, 3}, 0},
		{"the first bucket with enough", []int32{9, 5, 8, 7, 12, 16}, 1},
		{"the end of an epoch: the longest", []int32{1, 8, 2}, 1},
		{"one that is longer than all", []int32{17, 1}, 2},
		{"nothing", nil, 0},
	} {
		if got := l.Next(tt.waiting, 3); got != tt.want {
			t.Errorf("%s: bucket %d; expected %d", tt.name, got, tt.want)
		}
	}
	for length, want := range map[int32]int{1: 0, 4: 0, 5: 1, 8: 1, 9: 2, 16: 2} {
		if got := l.Of(length); got != want {
			t.Errorf("length %d: bucket %d; expected %d", length, got, want)
		}
	}
}
