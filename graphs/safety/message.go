package safety

import (
	"iter"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// message reads the fields of a protobuf message by name, so that it works with the generated types
// of any binding. A field that is not set is empty.
type message struct{ protoreflect.Message }

func (m message) field(name protoreflect.Name) protoreflect.FieldDescriptor {
	return m.Descriptor().Fields().ByName(name)
}

func (m message) text(name protoreflect.Name) string {
	v := m.Get(m.field(name)).Interface()
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return v.(string)
}

func (m message) sub(name protoreflect.Name) message {
	return message{m.Get(m.field(name)).Message()}
}

func (m message) list(name protoreflect.Name) protoreflect.List { return m.Get(m.field(name)).List() }

// items returns the messages of a repeated field.
func items(m message, name protoreflect.Name) iter.Seq[message] {
	return func(yield func(message) bool) {
		list := m.list(name)
		for i := range list.Len() {
			if !yield(message{list.Get(i).Message()}) {
				return
			}
		}
	}
}

// entries returns the messages of a map with string keys.
func (m message) entries(name protoreflect.Name) iter.Seq2[string, message] {
	return func(yield func(string, message) bool) {
		m.Get(m.field(name)).Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
			return yield(key.String(), message{value.Message()})
		})
	}
}
