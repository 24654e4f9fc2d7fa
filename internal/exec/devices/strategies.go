package devices

// The strategies by the names that users give them, in params, hosts files and on the
// command line.
const (
	// Auto is the strategy that the devices and workers at hand call for.
	Auto = "auto"
	// One is one device of this process.
	One = "one"
	// Mirrored is several devices of this process.
	Mirrored = "mirrored"
	// MultiWorker is the devices of several worker processes.
	MultiWorker = "multiworker"
	// TPU is the cores of a Cloud TPU.
	TPU = "tpu"
)

// Strategies lists the names of the strategies for the hosts of a hosts file.
func Strategies() []string { return []string{Auto, One, Mirrored, MultiWorker} }
