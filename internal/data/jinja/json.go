package jinja

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// JSON is a value of JSON, whose objects keep their order.
type JSON struct {
	value any
	bytes int
}

// ParseJSON reads a value. Numbers that are not whole, or beyond 2^53, are written as they are there, and a
// template cannot compute with them.
func ParseJSON(data []byte) (JSON, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := parseJSON(d, 0)
	if err == nil {
		if _, end := d.Token(); end != io.EOF {
			err = fmt.Errorf("more follows after the value; expected one")
		}
	}
	return JSON{v, len(data)}, err
}

func parseJSON(d *json.Decoder, depth int) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Number:
		n, err := t.Int64()
		if err != nil || max(n, -n) > maxNumber || t == "-0" {
			return written(t), nil
		}
		return n, nil
	case json.Delim:
		if depth == maxDepth {
			return nil, fmt.Errorf("its lists and objects are more than %d deep; expected fewer", maxDepth)
		}
		if t == '[' {
			l := &list{}
			for d.More() {
				item, err := parseJSON(d, depth+1)
				if err != nil {
					return nil, err
				}
				l.items = append(l.items, item)
			}
			_, err = d.Token()
			return l, err
		}
		o := &dict{values: map[string]any{}}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			item, err := parseJSON(d, depth+1)
			if err != nil {
				return nil, err
			}
			o.set(key.(string), item)
		}
		_, err = d.Token()
		return o, err
	}
	return token, nil
}
