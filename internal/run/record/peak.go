package record

import (
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/exec/peak"
	"github.com/gorbit-ml/gorbit/strategy"
)

// MachinePeak returns the peak of the devices of this machine that a model is on, in FLOPs per second:
// what was measured at some time before. It is 0 if it was not, and for the devices of workers and of a
// TPU.
func MachinePeak(on strategy.Runtime, precision, kind string) float64 {
	store, err := peak.OfUser()
	if err != nil || kind == devices.MultiWorker || kind == devices.TPU {
		return 0
	}
	key, n, ok := peak.Of(on.Devices, precision)
	if !ok {
		return 0
	}
	found, ok := store.Find(key)
	if !ok {
		return 0
	}
	return found.FLOPS * float64(n)
}
