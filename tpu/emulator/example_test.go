package emulator_test

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/tpu/emulator"
)

func ExampleParseTopology() {
	// Four chips of two cores each, shared by two hosts.
	topology, err := emulator.ParseTopology("2x2x1x2", 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(topology.Tasks, "hosts,", topology.DevicesPerTask, "cores each")
	// Output: 2 hosts, 4 cores each
}
