package text

// Model is an algorithm that splits words into tokens, as the part of that name of a tokenizer.json:
// what is left to do once a text is normalized and divided into words. It is immutable and safe for
// concurrent use.
//
// Packages below this one have one model each. To add one, write it as a package that imports this
// one alone, and add a row with its name in tokenizer.json to the table in tokenizerjson/model.go.
type Model interface {
	// Tokens returns the tokens by id, "" for an id without one. They are named as in the file.
	Tokens() []string
	// Unk returns the id of the unknown token, or -1.
	Unk() int32
	// NewSplitter returns what splits words for one goroutine.
	NewSplitter() Splitter
}

// Splitter splits words into tokens. It may keep what it knows of earlier words, so a goroutine of its
// own is needed for each.
type Splitter interface {
	// Append appends the tokens of a word, which is not empty.
	Append(dst []Piece, word string) []Piece
	// AppendIDs is Append of the ids alone.
	AppendIDs(dst []int32, word string) []int32
}

// Piece is a token of a word, and the number of the word's bytes that it stands for. It begins where
// the piece before it ended; if Len is negative, it stands for the same -Len bytes as that piece.
type Piece struct {
	ID  int32
	Len int32
}
