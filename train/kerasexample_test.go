package train

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/train/params"
)

// kerasShards writes records as the Keras example "Train a language model from scratch with TPUs" does
// (Apache-2.0), but for the options and the padding of the last block.
const kerasShards = `
import os, random, sys
import tensorflow as tf

def get_serialized_examples(tokenized_data):
    records = []
    for i in range(len(tokenized_data["input_ids"])):
        features = {
            "input_ids": tf.train.Feature(
                int64_list=tf.train.Int64List(value=tokenized_data["input_ids"][i])
            ),
            "attention_mask": tf.train.Feature(
                int64_list=tf.train.Int64List(value=tokenized_data["attention_mask"][i])
            ),
        }
        features = tf.train.Features(feature=features)
        example = tf.train.Example(features=features)
        record_bytes = example.SerializeToString()
        records.append(record_bytes)
    return records

random.seed(1)
ids = [[2, *(random.randrange(5, 30) for _ in range(14)), 3] for _ in range(40)]
grouped = {"input_ids": ids, "attention_mask": [[1] * 16 for _ in ids]}
grouped["input_ids"][39][10:] = [0] * 6
grouped["attention_mask"][39][10:] = [0] * 6
for kind, options in (("plain", None), ("gzip", "GZIP"), ("zlib", "ZLIB")):
    for split in ("train", "dev"):
        split_dir = os.path.join(sys.argv[1], kind, split)
        os.makedirs(split_dir)
        shard_count = 0
        for shard in range(0, 40, 15):
            dataset_snapshot = {k: v[shard : shard + 15] for k, v in grouped.items()}
            records_containing = len(dataset_snapshot["input_ids"])
            filename = os.path.join(split_dir, f"dataset-{shard_count}-{records_containing}.tfrecord")
            serialized_examples = get_serialized_examples(dataset_snapshot)
            with tf.io.TFRecordWriter(filename, options) as out_file:
                for i in range(len(serialized_examples)):
                    example = serialized_examples[i]
                    out_file.write(example)
            shard_count += 1
`

// TestRecordsOfKerasExample trains a masked language model on records with input_ids and attention_mask
// alone, in shards as the Keras example names them. Compressed ones without an index give the same.
func TestRecordsOfKerasExample(t *testing.T) {
	long(t)
	data, dir := testkit.Made(t, kerasShards), t.TempDir()
	p := params.Defaults()
	p.Graph = filepath.Join(testkit.Made(t, textTasks), "mlm")
	p.Data.Train, p.Data.Eval = "train/dataset", params.Splits{"dev/dataset"}
	p.Train.BatchSize, p.Train.Steps, p.Train.StepsPerLoop, p.Train.EvalInterval = 8, 10, 2, 5
	p.Data.RowLength, p.Optimizer.LearningRate = 16, 1e-2
	var want []string
	for _, kind := range []string{"plain", "gzip", "zlib"} {
		p.Data.Dir = filepath.Join(data, kind)
		run := filepath.Join(dir, kind)
		steps := mustTrain(t, p, run)
		if want == nil {
			want = steps
		}
		if !slices.Equal(steps, want) {
			t.Errorf("%s: steps are %q, expected %q", kind, steps, want)
		}
		sameRuns(t, run, filepath.Join(dir, "plain"))
	}
}
