// Package charsmap reads the tables by which SentencePiece normalizes texts (precompiled_charsmap): what
// strings become.
package charsmap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Map is a table: a double-array trie (Darts) of the bytes of strings, and the texts that its leaves point
// to. The zero value has no strings.
type Map struct {
	units []uint32
	texts string
}

// Parse reads a table, as it is in a .model file.
func Parse(table []byte) (Map, error) {
	var m Map
	if len(table) < 4 {
		return m, fmt.Errorf("table of normalization has %d bytes; expected 4 or more", len(table))
	}
	size := binary.LittleEndian.Uint32(table)
	rest := table[4:]
	if size%4 != 0 || size == 0 || uint64(size) > uint64(len(rest)) {
		return m, fmt.Errorf("table of normalization has a trie of %d bytes in %d", size, len(rest))
	}
	m.units = make([]uint32, size/4)
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(rest[4*i:])
	}
	if m.texts = string(rest[size:]); !utf8.ValidString(m.texts) {
		return m, errors.New("table of normalization has texts that are not valid UTF-8")
	}
	return m, nil
}

// noUnit is a place that the trie does not have.
const noUnit = ^uint32(0)

// offset returns the place of the children of a unit.
func (m *Map) offset(at uint32) uint32 {
	unit := m.units[at]
	return at ^ unit>>10<<(unit&(1<<9)>>6)
}

// step returns the place of the child for c, given that of the children, or noUnit.
func (m *Map) step(children uint32, c byte) uint32 {
	at := children ^ uint32(c)
	if at >= uint32(len(m.units)) || m.units[at]&(1<<31|0xff) != uint32(c) {
		return noUnit
	}
	return at
}

// Begins reports whether a string of the table begins with another one.
func (m *Map) Begins(with string) bool {
	if len(m.units) == 0 {
		return false
	}
	children := m.offset(0)
	for i := range len(with) {
		at := m.step(children, with[i])
		if at == noUnit {
			return false
		}
		children = m.offset(at)
	}
	return true
}

// Longest returns what the longest string becomes that a text begins with, and its length, or 0.
func (m *Map) Longest(text string) (to string, size int) { return m.find(text, false) }

// Shortest is Longest of the shortest string.
func (m *Map) Shortest(text string) (to string, size int) { return m.find(text, true) }

func (m *Map) find(text string, first bool) (to string, size int) {
	if len(m.units) == 0 {
		return "", 0
	}
	children, leaf := m.offset(0), noUnit
	for i := 0; i < len(text) && !(first && size > 0); i++ {
		at := m.step(children, text[i])
		if at == noUnit {
			break
		}
		children = m.offset(at)
		if m.units[at]>>8&1 == 1 && children < uint32(len(m.units)) {
			leaf, size = children, i+1
		}
	}
	if leaf == noUnit {
		return "", 0
	}
	begin := int(m.units[leaf] & (1<<31 - 1))
	if begin > len(m.texts) {
		return "", 0
	}
	to, _, _ = strings.Cut(m.texts[begin:], "\x00")
	return to, size
}
