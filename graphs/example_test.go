package graphs_test

import (
	"fmt"
	"log"
	"os"

	"github.com/gorbit-ml/gorbit/graphs"
)

// Open an export and check it without running any of it. An export from somebody else should be
// rejected if it uses unsafe operations.
func Example() {
	dir, err := os.MkdirTemp("", "export")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := graphs.Miniature(dir); err != nil { // instead of python -m gorbit_export
		log.Fatal(err)
	}

	export, err := graphs.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	if err := export.RefuseUnsafe(nil); err != nil {
		log.Fatal(err)
	}
	contract := export.Contract
	fmt.Println(contract.Model.Architecture, "with", contract.Parameters(), "parameters, trained by", contract.Optimizer.Name)
	for _, f := range contract.Features {
		fmt.Println("input", f.Name, f.DType, f.Axes)
	}
	for _, a := range export.Functions["predict"].Outputs {
		fmt.Println("output", a)
	}
	// Output:
	// line with 2 parameters, trained by momentum
	// input x float32 [examples]
	// input y float32 [examples]
	// output value float32 [?]
}
