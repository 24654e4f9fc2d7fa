package main

import (
	"context"
	"fmt"
	"time"

	"github.com/gorbit-ml/gorbit/internal/app/doctor"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/exec/peak"
)

// peakTime is how long products of one shape are measured.
const peakTime = 500 * time.Millisecond

// measuredPeak returns the peak of a device of this machine. If it is not remembered, or again is set,
// it is measured and remembered, unless the machine was busy (peak.BusyError).
func measuredPeak(ctx context.Context, key peak.Key, again bool) (peak.Peak, error) {
	store, err := peak.OfUser()
	if err != nil {
		return peak.Peak{}, err
	}
	if p, ok := store.Find(key); ok && !again {
		return p, nil
	}
	p, err := peak.Measure(ctx, key, peakTime)
	if err != nil {
		return p, err
	}
	return p, store.Keep(p)
}

// measuredProducts compares the products of this machine's CPU in bf16 and float32. They are measured
// together unless both are remembered: the speed of a shared machine changes by the hour.
func measuredProducts(ctx context.Context) (peak.Products, error) {
	store, err := peak.OfUser()
	if err != nil {
		return peak.Products{}, err
	}
	_, float32s := store.Find(peak.CPU("float32"))
	_, bf16s := store.Find(peak.CPU("bf16"))
	return peak.CompareProducts(ctx, devices.SlowBF16(), func(ctx context.Context, key peak.Key) (peak.Peak, error) {
		return measuredPeak(ctx, key, !float32s || !bf16s)
	})
}

// inspectPeaks reports the peaks of this machine that are remembered, or measures them. Precisions that
// the processor emulates are left out.
func inspectPeaks(ctx context.Context, measure bool) []doctor.Finding {
	keys := []peak.Key{peak.CPU("float32")}
	if devices.NativeBF16() {
		keys = append(keys, peak.CPU("bf16"))
	}
	if gpu, ok := peak.GPU("float32"); ok {
		gpu16 := gpu
		gpu16.Precision = "bf16"
		keys = []peak.Key{gpu, gpu16}
	}
	store, err := peak.OfUser()
	if err != nil {
		return nil // there is no place to remember it
	}
	var out []doctor.Finding
	for _, key := range keys {
		p, known := store.Find(key)
		if measure {
			if p, err = measuredPeak(ctx, key, true); err != nil {
				return append(out, doctor.Finding{Check: "peak", Level: doctor.Note, Text: err.Error(), Do: "trainings do not say which share of the peak they reach"})
			}
		}
		if known || measure {
			out = append(out, doctor.Finding{Check: "peak", Level: doctor.OK,
				Text: fmt.Sprintf("%sFLOP/s in matrix products in %s, measured %s", words.Scaled(p.FLOPS, " ", "k", "M", "G", "T", "P"), key.Precision, p.Measured.Local().Format(time.DateOnly))})
		}
	}
	return out
}
