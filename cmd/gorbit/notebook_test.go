package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// TestNotebook runs the notebook of examples without a browser, and drives a kernel of Jupyter that is
// interrupted in a training.
func TestNotebook(t *testing.T) {
	const variable = "GORBIT_JUPYTER_PYTHON"
	python := os.Getenv(variable)
	if python == "" {
		t.Skipf("%s is not set; expected a Python with nbconvert, ipykernel, ipywidgets, tqdm and pandas", variable)
	}
	t.Parallel()
	u := newUser(t)
	e := newEnvironment(t, u, buildWheel(t, u, "wheel"))
	n := u.write(40)
	e.run("gorbit", "convert", "--vocab", "vocab.txt", "--train", "reviews.tsv", "--text-column", "text", "--label-column", "label",
		"--labels", "bad,good", "--split-by-hash", "id", "--max-length", "24", "--out", "data/reviews")
	e.run("python", "-m", "gorbit_export", "bert-classifier", "--config", "tiny", "--vocab-size", fmt.Sprint(n), "--out", "exports/reviews")
	notebook, err := os.ReadFile(filepath.Join(testkit.Root(), "examples/python/train.ipynb"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(u.dir, "train.ipynb"), notebook, 0o666); err != nil {
		t.Fatal(err)
	}
	driver, err := filepath.Abs("testdata/notebook.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"-m", "jupyter", "nbconvert", "--to", "notebook", "--execute", "--output", "executed.ipynb", "train.ipynb"},
		{driver, "exports/reviews", "data/reviews"},
	} {
		cmd := u.command(python, args...)
		// The kernel has gorbit of the wheel, and TensorFlow's library, but none of the checkout's other packages.
		cmd.Env = slices.Concat(cmd.Env, []string{"PYTHONPATH=" + e.site(), "GORBIT_TENSORFLOW=" + filepath.Join(e.checkout(), "tensorflow")})
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
}
