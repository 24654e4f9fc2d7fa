package emulator

import "testing"

// Devices of emulated hosts are those of one server, or of a server for each.
func TestLayoutBehind(t *testing.T) {
	one := layout{job: "tpu_worker", hosts: 2, cores: 4}
	apart := one
	apart.apart = true
	for _, c := range []struct{ device, one, apart string }{
		{"/job:tpu_worker/replica:0/task:0/device:TPU_SYSTEM:0", "task:0/device:CPU:0", "task:0/device:CPU:0"},
		{"/job:tpu_worker/task:0/device:TPU:3", "task:0/device:CPU:4", "task:0/device:CPU:4"},
		{"/job:tpu_worker/replica:0/task:1/device:CPU:0", "task:0/device:CPU:5", "task:1/device:CPU:0"},
		{"/job:tpu_worker/replica:0/task:1/device:TPU:3", "task:0/device:CPU:9", "task:1/device:CPU:4"},
	} {
		for _, of := range []struct {
			l    layout
			want string
		}{{one, c.one}, {apart, c.apart}} {
			if got, err := of.l.behind(c.device); err != nil || got != "/job:worker/replica:0/"+of.want {
				t.Errorf("%s, apart %v: %s, %v; expected %s", c.device, of.l.apart, got, err, of.want)
			}
		}
	}
	if one.cpus() != 10 || apart.cpus() != 5 {
		t.Errorf("servers have %d and %d CPU devices, expected 10 and 5", one.cpus(), apart.cpus())
	}
}
