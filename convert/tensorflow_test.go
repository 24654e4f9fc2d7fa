package convert

import (
	"image"
	"path/filepath"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// TestTensorFlowReadsSchemaRecords lets TensorFlow parse records by the shapes of the manifest.
func TestTensorFlowReadsSchemaRecords(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Python")
	}
	dir := write(t, map[string]string{
		"schema.yaml": `
features:
  sizes: {kind: number, columns: [a, b]}
  count: {kind: number, dtype: int64}
  pixels: {kind: number, dtype: uint8, column: px, shape: [2, 2]}
  tags: {kind: category, shape: [null], separator: "|"}
  photo: {kind: image, column: file, shape: [2, 3, 1]}
  same: {kind: image, column: file, shape: [2, 3, 1], encoding: raw}
  name: {role: id}
  colour: {kind: category, role: label}
`,
		"gray.png":  picture(t, image.NewGray(image.Rect(0, 0, 3, 2)), "png"),
		"train.csv": "a,b,count,px,tags,file,name,colour\n1.5,-2,-7,1 2 3 200,x|y|x,gray.png,é,red\n",
	})
	cfg := bySchema(dir, Config{Inputs: []Input{{Train, "train.csv"}}})
	mustRun(t, cfg)
	const script = `
import glob, json, sys
import numpy as np
import tensorflow as tf
folder = sys.argv[1]
manifest = json.load(open(folder + "/manifest.json"))
raw = {"photo", "same", "name", "pixels"}
kinds = {"float32": tf.float32}
spec = {}
for f in manifest["features"]:
    kind = tf.string if f["name"] in raw else kinds.get(f["dtype"], tf.int64)
    shape = [] if f["name"] in raw else f["shape"]
    spec[f["name"]] = tf.io.RaggedFeature(kind) if None in shape else tf.io.FixedLenFeature(shape, kind)
record = next(iter(tf.data.TFRecordDataset(glob.glob(folder + "/train-*"))))
e = tf.io.parse_single_example(record, spec)
image = tf.io.decode_png(e["photo"], channels=1).numpy()
assert image.shape == (2, 3, 1), image.shape
assert (np.frombuffer(e["same"].numpy(), "uint8").reshape(image.shape) == image).all()
print(e["sizes"].numpy(), e["count"].numpy(), np.frombuffer(e["pixels"].numpy(), "uint8").reshape(2, 2).tolist(),
      e["tags"].numpy(), e["name"].numpy().decode(), e["colour"].numpy(), e["example_id"].numpy())
`
	const want = "[ 1.5 -2. ] -7 [[1, 2], [3, 200]] [0 1 0] é 0 0\n"
	if got := testkit.RunPython(t, script, filepath.Join(dir, "out")); got != want {
		t.Errorf("TensorFlow reads\n%sexpected\n%s", got, want)
	}
}
