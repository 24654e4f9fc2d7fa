package summary

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"sort"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// Point is a value of a scalar.
type Point struct {
	Step  int64
	Time  float64 // seconds since 1970
	Value float64
}

// Scalars are the scalars of the event files of a folder.
type Scalars struct {
	// Points are the values by tag, in the order in which they were written. Points that a restart
	// has replaced are left out.
	Points map[string][]Point
	// Damaged is the number of events that could not be read. The last event of a file that is being
	// written may be one.
	Damaged int
}

// ReadScalars reads the scalars of all event files of a folder, in the order in which TensorBoard
// reads them. Other values, such as histograms, are left out. A folder that is not there has none.
func ReadScalars(dir string) (*Scalars, error) {
	s := &Scalars{Points: map[string][]Point{}}
	entries, err := vfs.ReadDir(dir) // sorted by name
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !strings.HasPrefix(e.Name(), filePrefix) {
			continue
		}
		if err := s.read(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("events: %w", err)
		}
	}
	return s, nil
}

// read adds the scalars of a file.
func (s *Scalars) read(path string) error {
	rd, err := tfrecord.Open(path, tfrecord.OnCorrupt(tfrecord.Skip))
	if err != nil {
		return err
	}
	defer rd.Close()
	for {
		record, err := rd.Next()
		if err == io.EOF {
			s.Damaged += int(rd.Skipped().Records)
			return nil
		}
		if err != nil {
			return err
		}
		if !s.event(record) {
			s.Damaged++
		}
	}
}

// restart drops the points of a step and later ones.
func (s *Scalars) restart(step int64) {
	for tag, points := range s.Points {
		keep := sort.Search(len(points), func(i int) bool { return points[i].Step >= step })
		s.Points[tag] = points[:keep]
	}
}

// Numbers of the fields of tensorflow.Event, Summary, Summary.Value and TensorProto.
const (
	eventTime, eventStep, eventSummary, eventSession = 1, 2, 5, 7
	summaryValue                                     = 1
	valueTag, valueSimple, valueTensor               = 1, 2, 8
	tensorDType, tensorContent, tensorFloats         = 1, 4, 5
	dtypeFloat                                       = 1
	sessionStatus, sessionStart                      = 1, 1
)

// event adds the scalars of an event. It returns false if the event is malformed. The messages are
// read field by field: unmarshalling them all would take most of the time of reading a long run.
func (s *Scalars) event(record []byte) bool {
	var at Point
	var values [][]byte
	started := false
	ok := fields(record, func(number protowire.Number, word uint64, bytes []byte) {
		switch number {
		case eventTime:
			at.Time = math.Float64frombits(word)
		case eventStep:
			at.Step = int64(word)
		case eventSummary:
			values = append(values, bytes)
		case eventSession:
			fields(bytes, func(number protowire.Number, word uint64, _ []byte) {
				started = started || number == sessionStatus && word == sessionStart
			})
		}
	})
	if started {
		s.restart(at.Step)
	}
	for _, summary := range values {
		ok = ok && fields(summary, func(number protowire.Number, _ uint64, bytes []byte) {
			if number == summaryValue {
				ok = s.value(bytes, at) && ok
			}
		})
	}
	return ok
}

// value adds a value of a summary if it is a scalar.
func (s *Scalars) value(value []byte, at Point) bool {
	var tag []byte
	scalar := false
	ok := fields(value, func(number protowire.Number, word uint64, bytes []byte) {
		switch number {
		case valueTag:
			tag = bytes
		case valueSimple: // TensorFlow 1
			at.Value, scalar = float64(math.Float32frombits(uint32(word))), true
		case valueTensor:
			at.Value, scalar = scalarOf(bytes)
		}
	})
	if ok && scalar {
		s.Points[string(tag)] = append(s.Points[string(tag)], at)
	}
	return ok
}

// scalarOf returns the value of a float32 tensor of one element.
func scalarOf(tensor []byte) (value float64, ok bool) {
	var dtype uint64
	var raw []byte
	whole := fields(tensor, func(number protowire.Number, word uint64, bytes []byte) {
		switch number {
		case tensorDType:
			dtype = word
		case tensorContent:
			raw = bytes
		case tensorFloats: // packed, or one element
			if raw = bytes; bytes == nil {
				raw = binary.LittleEndian.AppendUint32(nil, uint32(word))
			}
		}
	})
	if !whole || dtype != dtypeFloat || len(raw) != 4 {
		return 0, false
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))), true
}

// fields calls each for the fields of a message: word is the value of a number, bytes that of
// anything else. It returns false if the message is malformed.
func fields(message []byte, each func(number protowire.Number, word uint64, bytes []byte)) bool {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return false
		}
		message = message[n:]
		var word uint64
		var bytes []byte
		switch kind {
		case protowire.VarintType:
			word, n = protowire.ConsumeVarint(message)
		case protowire.Fixed32Type:
			var v uint32
			v, n = protowire.ConsumeFixed32(message)
			word = uint64(v)
		case protowire.Fixed64Type:
			word, n = protowire.ConsumeFixed64(message)
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return false
		}
		message = message[n:]
		each(number, word, bytes)
	}
	return true
}
