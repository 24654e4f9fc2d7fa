package tfjpeg

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"image"
	"image/jpeg"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/data/pixels"
)

// golden is an image of testdata/generate.py.
type golden struct {
	Name         string
	File, Pixels []byte
	Shape        []int
}

func goldens(t *testing.T) []golden {
	t.Helper()
	text, err := os.ReadFile("testdata/images.json")
	if err != nil {
		t.Fatal(err)
	}
	var out []golden
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func named(t *testing.T, name string) golden {
	t.Helper()
	all := goldens(t)
	i := slices.IndexFunc(all, func(g golden) bool { return g.Name == name })
	if i < 0 {
		t.Fatalf("there is no image %q", name)
	}
	return all[i]
}

// decoded decodes an image as datasets do.
func decoded(t *testing.T, file []byte, channels int) (values []byte, reason string) {
	t.Helper()
	by, err := pixels.DecoderOf(pixels.TensorFlow)
	if err != nil {
		t.Fatal(err)
	}
	i, err := pixels.Open(file)
	if err != nil {
		return nil, err.Error()
	}
	values = make([]byte, i.Height*i.Width*channels)
	return values, i.Decode(values, channels, by)
}

// TestGoldens compares images with those of tf.io.decode_jpeg, exactly, from several goroutines.
func TestGoldens(t *testing.T) {
	var wait sync.WaitGroup
	for _, g := range goldens(t) {
		for range 4 {
			wait.Go(func() {
				got, reason := decoded(t, g.File, g.Shape[2])
				if reason != "" || !bytes.Equal(got, g.Pixels) {
					t.Errorf("%s: %q, equal %v", g.Name, reason, bytes.Equal(got, g.Pixels))
				}
			})
		}
	}
	wait.Wait()
}

// TestChannels asks for other channels than a file has.
func TestChannels(t *testing.T) {
	rgb, gray := named(t, "4:2:0"), named(t, "gray as RGB")
	got, reason := decoded(t, rgb.File, 4)
	if reason != "" {
		t.Fatal(reason)
	}
	for i := range len(got) / 4 {
		if !bytes.Equal(got[4*i:4*i+3], rgb.Pixels[3*i:3*i+3]) || got[4*i+3] != 255 {
			t.Fatalf("pixel %d is %v, want %v", i, got[4*i:4*i+4], rgb.Pixels[3*i:3*i+3])
		}
	}
	if _, reason = decoded(t, rgb.File, 1); reason != "is a JPEG image with colours; expected a gray one, because the feature has one channel" {
		t.Error(reason)
	}
	var three bytes.Buffer // a file of three channels whose colours are equal
	if err := jpeg.Encode(&three, image.NewYCbCr(image.Rect(0, 0, 9, 5), image.YCbCrSubsampleRatio420), nil); err != nil {
		t.Fatal(err)
	}
	if got, reason = decoded(t, gray.File, 1); reason != "" || got[7] != gray.Pixels[3*7] {
		t.Errorf("%q, %d", reason, got[7])
	}
}

// TestDamage decodes files that are no whole images.
func TestDamage(t *testing.T) {
	g := named(t, "4:2:0")
	size := bytes.Index(g.File, []byte("\xff\xc0")) + 5 // of the height and width in the header
	other := slices.Clone(g.File)
	binary.BigEndian.PutUint16(other[size:], 60)
	precise := slices.Clone(g.File)
	precise[size-1] = 12
	for _, tt := range []struct {
		name string
		file []byte
		want string
	}{
		{"cut in the header", g.File[:100], "unexpected EOF"},
		{"cut in the pixels", g.File[:len(g.File)-100], "is a JPEG image that cannot be decoded: "},
		{"no end", g.File[:len(g.File)-2], "is a JPEG image that cannot be decoded: "},
		{"another height", other, "is a JPEG image that cannot be decoded: "},
		{"12 bits", precise, "unsupported JPEG feature: precision"},
		{"no pixels", append(slices.Clone(g.File[:bytes.Index(g.File, []byte("\xff\xda"))]), 0xff, 0xd9), "is a JPEG image that cannot be decoded: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, reason := decoded(t, tt.file, 3); !strings.Contains(reason, tt.want) {
				t.Errorf("%q, expected %q", reason, tt.want)
			}
		})
	}
}

// TestAnyBytes decodes files with wrong bytes. What is no image for Go's library and gives libjpeg cause
// to doubt is none.
func TestAnyBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	all, refused := goldens(t), 0
	for range 4000 {
		file := slices.Clone(all[r.IntN(len(all))].File)
		for range 1 + r.IntN(3) {
			file[2+r.IntN(len(file)-2)] = byte(r.Uint32())
		}
		if i, err := pixels.Open(file); err != nil || i.Height*i.Width > 1<<20 {
			continue
		}
		if _, reason := decoded(t, file, 3); reason != "" {
			refused++
		}
	}
	t.Logf("%d refused", refused)
	if refused == 0 {
		t.Error("every file is an image")
	}
}

// TestSizes gives the decoder other sizes than the file's.
func TestSizes(t *testing.T) {
	by, err := open()
	if err != nil {
		t.Fatal(err)
	}
	g := named(t, "4:2:0")
	for _, tt := range []struct {
		values, height, width int
		file                  []byte
		want                  string
	}{
		{3 * 35 * 43, 43, 35, g.File, "another size than the header's"},
		{3*35*43 - 1, 35, 43, g.File, "expected both to fit"},
		{3, 1, 1, nil, "expected both to fit"},
	} {
		if _, err := by.Decode(make([]byte, tt.values), tt.file, tt.height, tt.width, 3); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, expected %q", err, tt.want)
		}
	}
}

// goPixels are checksums of what Go's library makes of the images. A run that began with it has these
// pixels; if another release of Go has others, the release notes must say so.
var goPixels = map[string]uint32{
	"4:4:4": 0x87298622, "4:2:2": 0x2aa6cd4f, "4:2:0": 0x52b4fd5, "progressive": 0x6417b8b3, "restarts": 0x52b4fd5,
	"CMYK": 0xa6bba6b3, "gray": 0xd3cf4652, "gray as RGB": 0xaf416d7e, "one pixel": 0x95f612f7, "bytes between parts": 0x52b4fd5,
}

// TestGo holds the pixels of Go's library.
func TestGo(t *testing.T) {
	for _, g := range goldens(t) {
		i, err := pixels.Open(g.File)
		if err != nil {
			t.Fatal(err)
		}
		values := make([]byte, len(g.Pixels))
		if reason := i.Decode(values, g.Shape[2], nil); reason != "" {
			t.Errorf("%s: %s", g.Name, reason)
		}
		if got := crc32.ChecksumIEEE(values); got != goPixels[g.Name] {
			t.Errorf("%q: %#x,", g.Name, got)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	file := new(bytes.Buffer)
	img, r := image.NewYCbCr(image.Rect(0, 0, 224, 224), image.YCbCrSubsampleRatio420), rand.New(rand.NewPCG(1, 1))
	for _, plane := range [][]byte{img.Y, img.Cb, img.Cr} {
		for i := range plane {
			plane[i] = byte(i/7 + r.IntN(16))
		}
	}
	if err := jpeg.Encode(file, img, nil); err != nil {
		b.Fatal(err)
	}
	for _, name := range pixels.JPEGDecoders {
		b.Run(name, func(b *testing.B) {
			by, err := pixels.DecoderOf(name)
			if err != nil {
				b.Fatal(err)
			}
			to := make([]byte, 224*224*3)
			for b.Loop() {
				i, err := pixels.Open(file.Bytes())
				if err != nil {
					b.Fatal(err)
				}
				if reason := i.Decode(to, 3, by); reason != "" {
					b.Fatal(reason)
				}
			}
		})
	}
}
