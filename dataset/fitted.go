package dataset

// FittedLayout is a Layout whose batches may have a fixed size. A batch then takes as many of the
// next records as fit, and those that do not fit come first in the next batch. Which records these
// are depends on their sizes only, so it is known before they are read again.
type FittedLayout interface {
	Layout
	// Fit returns how batches of a fixed size, of at most a given number of examples, are filled.
	// It returns nil if every batch takes that many records.
	Fit(examples int) *Fit
}

// Fit says how batches of a fixed size are filled.
type Fit struct {
	// Key identifies what the results of measuring depend on, other than the records.
	Key string
	// Measurers returns a function that makes measurers. Each is used by one goroutine.
	Measurers func() Measurer
	// Room returns the room that a record of a measured size takes, or 0 if it is left out of the
	// batch or refused.
	Room func(size int) int32
	// Fillers returns a new Filler.
	Fillers func() Filler
	// Cells returns the size of the batch of records with the given places.
	Cells func(places []int32) int64
}

// Measurer returns the size of a record, from 1 to 65535; larger ones have size 65535. The size is
// 0 if the record only fills up a batch or is not as expected. An error, which is
// of package tfrecord, means that its bytes cannot be decoded.
type Measurer func(data []byte) (int, error)

// Filler chooses the records of batches. It is used by one goroutine.
type Filler interface {
	// Sees is the number of records, in the order in which they wait, that a choice may depend on.
	Sees() int
	// Fill chooses from the records that wait, which take the given room. It sets places[i] to the
	// place of record i in the batch, or to -1 if it is not taken. It takes at least the first
	// record. It reports whether the batch is full: if it is not, all records were taken.
	Fill(rooms, places []int32) (full bool)
}

// PlacedAssembler is an Assembler of a FittedLayout. Batch returns a batch of the fixed size, also
// if records were left out.
type PlacedAssembler interface {
	Assembler
	// AddAt is Add for a record that a Filler has given a place; -1 means that the record takes no
	// room.
	AddAt(place int32, id RecordID, data []byte) *RecordError
}
