package params

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// fields calls f with each param's name and field, in the order of params.yaml.
func (p *Params) fields(f func(name string, field reflect.Value)) {
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		if v.Kind() != reflect.Struct || v.Type() == reflect.TypeFor[ByClass]() {
			f(path, v)
			return
		}
		for field, value := range v.Fields() {
			walk(strings.TrimPrefix(path+"."+field.Tag.Get("yaml"), "."), value)
		}
	}
	walk("", reflect.ValueOf(p).Elem())
}

// byName returns the params' fields.
func (p *Params) byName() map[string]reflect.Value {
	out := make(map[string]reflect.Value)
	p.fields(func(name string, field reflect.Value) { out[name] = field })
	return out
}

// hasMembers has the params with members that have names of their own.
var hasMembers = func() map[string]bool {
	out := make(map[string]bool)
	new(Params).fields(func(name string, field reflect.Value) {
		switch field.Kind() {
		case reflect.Map, reflect.Slice, reflect.Struct:
			out[name] = field.Type() != reflect.TypeFor[Splits]()
		}
	})
	return out
}()

// Defaults returns the default params.
func Defaults() Params {
	var p Params
	fields := p.byName()
	for _, row := range table {
		switch field := fields[row.Name]; {
		case field.Kind() == reflect.Map:
			field.Set(reflect.MakeMap(field.Type()))
		case field.Kind() == reflect.Struct:
			field.Set(reflect.ValueOf(ByClass{Rule: row.Default.(string)}))
		case row.Default != nil:
			field.Set(reflect.ValueOf(row.Default).Convert(field.Type()))
		}
	}
	return p
}

// Flat returns the params by name, section.name. Strings are quoted.
func (p Params) Flat() map[string]any {
	out := make(map[string]any)
	var add func(path string, v reflect.Value)
	add = func(path string, v reflect.Value) {
		if splits, ok := v.Interface().(Splits); ok {
			v = reflect.ValueOf(splits.String())
		}
		if by, ok := v.Interface().(ByClass); ok {
			if v = reflect.ValueOf(by.Of); by.Rule != "" {
				v = reflect.ValueOf(by.Rule)
			}
		}
		switch v.Kind() {
		case reflect.Struct: // a group
			for f, field := range v.Fields() {
				add(path+"."+f.Tag.Get("yaml"), field)
			}
		case reflect.Map:
			for key, value := range v.Seq2() {
				add(path+"."+key.String(), value)
			}
		case reflect.String:
			out[path] = strconv.Quote(v.String())
		case reflect.Slice:
			for i := range v.Len() {
				add(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
			}
		default:
			out[path] = v.Interface()
		}
	}
	p.fields(add)
	return out
}
