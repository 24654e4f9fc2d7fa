package graphs_test

import (
	"fmt"
	"log"
	"os"

	"github.com/gorbit-ml/gorbit/graphs"
)

// An export is opened and checked without running anything of it. One that is not your own is
// refused where its operations reach beyond the graph.
func Example() {
	dir, err := os.MkdirTemp("", "export")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := graphs.Miniature(dir); err != nil { // in its place: python -m gorbit_export
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
		fmt.Println("takes", f.Name, f.DType, f.Axes)
	}
	for _, a := range export.Functions["predict"].Outputs {
		fmt.Println("answers", a)
	}
	// Output:
	// line with 2 parameters, trained by momentum
	// takes x float32 [examples]
	// takes y float32 [examples]
	// answers value float32 [?]
}
