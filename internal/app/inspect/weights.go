package inspect

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/base/words"
)

// verifyUpTo is the size in bytes up to which checksums are verified without being asked for.
const verifyUpTo = 512 << 20

// Weights describes a checkpoint, safetensors or GGUF.
type Weights struct {
	Kind Kind   `json:"kind"`
	Path string `json:"path"`
	Note string `json:"note,omitempty"`
	// Tensors are in the order of their names.
	Tensors []Tensor `json:"tensors"`
	// Numbers is the number of elements of all tensors but strings, and Bytes what they take.
	Numbers int64 `json:"numbers"`
	Bytes   int64 `json:"bytes"`
	// Checksums says whether they were verified.
	Checksums string `json:"checksums"`
	// Metadata is that of a file of safetensors or GGUF.
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Tensor is a stored tensor.
type Tensor struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape"`
	// Bytes is what the tensor takes in the file; 0 for one that was saved in slices.
	Bytes  int64 `json:"bytes"`
	Slices int   `json:"slices,omitempty"`
}

// The states of checksums.
const (
	verified  = "verified"
	unread    = "not verified"
	noneKnown = "none in this file; the header was checked"
)

// DescribeWeights lists a checkpoint or a file of safetensors or GGUF. Checksums are verified if verify is set,
// or if that is fast.
func DescribeWeights(ctx context.Context, found Found, verify bool) (*Weights, error) {
	src, closing, err := checkpoint.OpenSource(found.Path)
	if err != nil {
		return nil, err
	}
	defer closing()
	w := &Weights{Kind: found.Kind, Path: found.Path, Note: found.Note, Tensors: []Tensor{}, Checksums: noneKnown}
	names := namesOf(src)
	for _, e := range src.Entries() {
		t := Tensor{Name: names[e.Name], DType: checkpoint.DTypeName(e.DType), Shape: append([]int64{}, e.Shape...), Bytes: e.Size, Slices: e.Slices}
		switch s := src.(type) {
		case *checkpoint.Safetensors:
			if e.DType == 0 {
				t.DType = strings.ToLower(s.FormatType(e.Name))
			}
		case *checkpoint.GGUF:
			t.DType = s.FormatType(e.Name)
		}
		w.Tensors = append(w.Tensors, t)
		w.Bytes += e.Size
		if e.Numeric() {
			n := int64(1)
			for _, d := range e.Shape {
				n *= d
			}
			w.Numbers += n
		}
	}
	slices.SortFunc(w.Tensors, func(a, b Tensor) int { return strings.Compare(a.Name, b.Name) })
	switch s := src.(type) {
	case *checkpoint.Safetensors:
		w.Metadata = s.Metadata()
		if s.Summed() {
			if w.Checksums = unread; verify || w.Bytes <= verifyUpTo {
				if err := s.Verify(ctx); err != nil {
					return nil, err
				}
				w.Checksums = verified
			}
		}
	case *checkpoint.GGUF:
		w.Metadata = s.Metadata()
	case *checkpoint.Bundle:
		if w.Checksums = unread; verify || w.Bytes <= verifyUpTo {
			if err := s.Verify(ctx); err != nil {
				return nil, err
			}
			w.Checksums = verified
		} else if err := s.CheckSizes(); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// namesOf returns the names to show, by the entries' own: paths of the object graph where there is one.
func namesOf(src checkpoint.Source) map[string]string {
	names := make(map[string]string)
	for _, e := range src.Entries() {
		names[e.Name] = e.Name
	}
	if b, ok := src.(*checkpoint.Bundle); ok {
		if g, err := b.ObjectGraph(); err == nil && g != nil {
			for _, v := range g.Variables() {
				if names[v.Key] == v.Key {
					names[v.Key] = v.Name
				}
			}
		}
	}
	return names
}

// Write writes the list as text.
func (w *Weights) Write(out io.Writer) error {
	tabs := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tabs, "  %s\t%s\n", w.Kind, w.Path)
	if w.Note != "" {
		fmt.Fprintf(tabs, "  note\t%s\n", w.Note)
	}
	fmt.Fprintf(tabs, "  tensors\t%d, %s numbers, %s\n", len(w.Tensors), words.Thousands(w.Numbers), words.Bytes(w.Bytes))
	sums := w.Checksums
	if sums == unread {
		sums += "; --verify reads the whole checkpoint"
	}
	fmt.Fprintf(tabs, "  checksums\t%s\n", sums)
	for _, key := range sorted(w.Metadata) {
		fmt.Fprintf(tabs, "  metadata\t%s: %s\n", plain(key), plain(words.Clip(w.Metadata[key], 80)))
	}
	fmt.Fprintln(tabs)
	for _, t := range w.Tensors {
		size := words.Bytes(t.Bytes)
		if t.Slices > 0 {
			size = fmt.Sprintf("in %d slices", t.Slices)
		}
		fmt.Fprintf(tabs, "  %s\t%s\t%s\t%s\n", plain(t.Name), t.DType, shapeText(t.Shape), size)
	}
	return tabs.Flush()
}
