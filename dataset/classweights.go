package dataset

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ClassWeights make the examples of some classes count more than those of others: the weight of each
// example is multiplied by that of its class.
type ClassWeights struct {
	// Label is the feature of a batch that holds the class of each example: integers, one for each.
	Label string
	// Weight is the feature that holds the weight of each example: float32, one for each.
	Weight string
	// Of are the weights by class. A class beyond them has weight 1.
	Of []float64
}

// validate returns an error for the first field that makes no sense.
func (c *ClassWeights) validate() error {
	if c.Label == "" || c.Weight == "" {
		return errors.New("class weights name no label or no weight; expected two features of a batch")
	}
	for class, w := range c.Of {
		if !(w > 0 && w <= math.MaxFloat32) {
			return fmt.Errorf("weight of class %d is %v; expected a finite number above 0", class, w)
		}
	}
	return nil
}

// apply multiplies the weights of a batch.
func (c *ClassWeights) apply(b *Batch) error {
	label, weight := b.Feature(c.Label), b.Feature(c.Weight)
	switch {
	case label == nil || weight == nil:
		return fmt.Errorf("class weights are of label %s and weight %s; expected two features of a batch", c.Label, c.Weight)
	case weight.DType() != Float32 || label.DType() == Float32 || label.Len() != weight.Len():
		return fmt.Errorf("class weights are of label %s, %d values of %s, and weight %s, %d values of %s; expected an integer and a float32 for each example",
			c.Label, label.Len(), label.DType(), c.Weight, weight.Len(), weight.DType())
	}
	for i, w := range weight.Float32 {
		if class := label.integer(i); w != 0 && class >= 0 && class < int64(len(c.Of)) {
			weight.Float32[i] = w * float32(c.Of[class])
		}
	}
	return nil
}

// integer returns value i of a feature of integers.
func (f *Feature) integer(i int) int64 {
	switch {
	case f.Int32 != nil:
		return int64(f.Int32[i])
	case f.Int64 != nil:
		return f.Int64[i]
	case f.Uint8 != nil:
		return int64(f.Uint8[i])
	case f.Bool[i]:
		return 1
	}
	return 0
}

// mostSpelled is the maximum number of weights that a position spells out.
const mostSpelled = 64

// spelled returns numbers as a text that is equal for equal numbers, "" for none.
func spelled(numbers []float64) string {
	if len(numbers) == 0 {
		return ""
	}
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = strconv.FormatFloat(n, 'g', -1, 64)
	}
	text := strings.Join(words, " ")
	if len(words) > mostSpelled {
		sum := sha256.Sum256([]byte(text))
		return fmt.Sprintf("%d numbers with the checksum %x", len(words), sum[:8])
	}
	return text
}
