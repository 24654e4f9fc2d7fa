// Package dataset draws batches from TFRecord files, deterministically and from any position.
//
// # From records to batches
//
// The records of all files form one sequence. Each epoch draws each record once,
// in an order that depends only on the seed and the epoch ([Shuffle]). BatchSize
// consecutive draws make a batch. The last batch of an epoch has the remaining
// records, unless remainders are dropped. A batch never spans two epochs. Its
// examples keep the order in which they were drawn, however they are laid out.
//
// The content of a batch is a function of the files, the settings, the epoch and
// the position in it. So it does not depend on the number of readers, and
// [Dataset.Restore] moves to a position without reading anything. [State] is a
// position together with the settings it depends on. A Dataset with other settings
// refuses it. Several hosts can draw the same batches together, each host a [Part]
// of every batch. With [Sampling], an epoch draws records with replacement, by their class.
//
// # Batches of a fixed size
//
// A [FittedLayout] may fix the size of batches, as TPUs need it. A batch then takes as many of the
// next records as fit; those that do not fit come first in the next batch. Which records these are
// follows from their sizes, which are measured once and kept in a file next to the records. The
// State names the records that were passed over. [Dataset.Batches] counts the batches of epochs.
//
// # Layouts
//
// A [Layout] says what a record contains and how the examples of a batch are laid out in tensors.
// Package dataset declares the interface and knows no layout itself. Package dataset/packed packs
// the tokens of several examples into each row, and package dataset/dense stacks or pads features of
// any type. A layout makes an [Assembler] for each reader. A [Spec] says how a feature is made from
// records; docs/reference/batches.md has the rules.
//
// # Errors
//
// A record with unexpected features is a [RecordError] that names the file, the
// record, the feature and what was expected. A damaged record is a CorruptError of
// tfrecord, and one that is not an Example wraps its ExampleError. Under
// tfrecord.Skip both leave their batch with one example less, so that all other
// batches stay the same, and the State counts them. A State of other data or
// settings is a [StateError].
//
// docs/design/input.md explains the permutation step by step.
package dataset
