// Package generate is the core of text generation: it decides which tokens a model computes next, and
// which token each sequence takes. It calls no model and does no input or output, so that every part of it
// is tested without one.
//
// A [Scheduler] has the state of many requests. A program adds requests, which may be at any time, and
// repeats three steps:
//
//	batch, ok := s.Next()      // what to compute: tokens, their places, and what each may look at
//	logits, err := ...         // by any model
//	updates, err := s.Take(logits)
//
// [Run] is that loop over a [Model]. Requests enter when there is room for them and leave when they are
// finished, at any call: this is continuous batching.
//
// # The cache
//
// A model keeps what it computed of each token in a slot of a cache. The scheduler says which slot a token
// has. The tokens of a request are a tree: the beams of a search, or several samples of one prompt, share
// the tokens that they begin with, and a token's slot is free again when no sequence has the token any
// more. A request whose prompt begins as that of another one, which is not finished, shares its tokens, too, so
// that they are computed once. A request enters when the slots that it may need at most are free, so that what entered can always
// be finished. Slot 0 is for padding.
//
// The tokens of a source, of an encoder-decoder model, have slots of a second cache, which the scheduler gives
// when a request enters and takes back when it leaves. A batch says which sources are to be encoded before it
// ([Batch.Encode]); all sequences of a request look at one.
//
// # Names
//
// [Config] has the names and meanings of generate in Hugging Face's transformers, and its logits
// processors work in the same order. Greedy search and beam search give the ids that transformers gives
// (see testdata/golden.py). Samples are drawn from the same distributions, with random numbers of our own:
// a sequence's numbers depend on Config.Seed and the sequence's number alone, whatever else is in a batch.
package generate
