package launch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/exec/devices"
)

// Command is the command line of one process of a run.
type Command struct {
	// Name is how lines of its output are marked, such as "worker 0".
	Name string
	// Address is what a worker listens on; "" for the chief.
	Address string
	// Local says whether the process is started here: on this machine, or on another over ssh.
	Local bool
	// Token says that the process reads the run's token from standard input.
	Token bool
	// secret is on the standard input of the process.
	secret string
	// Args are its arguments, the program's name first.
	Args []string
	// Cores are the processor cores that it may use; none means those of this process.
	Cores []int
}

// String returns the command line as typed in a shell.
func (c Command) String() string {
	words := make([]string, len(c.Args))
	for i, a := range c.Args {
		words[i] = Quote(a)
	}
	return strings.Join(words, " ")
}

// Quote returns a word quoted for a shell, if it needs quotes.
func Quote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./,:=@%+", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Commands are the processes of a run: a worker for each host, none where the
// only host is the chief's own, and the chief.
type Commands struct {
	Workers []Command
	Chief   Command
}

// ArgumentError reports a flag for gorbit train that the plan sets already.
type ArgumentError struct{ Flag string }

func (e *ArgumentError) Error() string {
	return fmt.Sprintf("%s is set by the plan; remove it from the arguments after --", e.Flag)
}

// planned are the flags of gorbit train that a plan, or launch, decides.
var planned = []string{"--strategy", "--workers", "--devices", "--sockets", "--token-file", "--tls-cert", "--tls-key", "--tls-ca"}

// overwrite is the flag of gorbit train that removes the run.
const overwrite = "--overwrite"

// startsAnew reports whether a chief would not continue the run if it were started again.
func (c Command) startsAnew() bool {
	return slices.ContainsFunc(c.Args, func(a string) bool { return a == overwrite || strings.HasPrefix(a, overwrite+"=") })
}

// fromInput is the value of --token-file for a token on standard input.
const fromInput = "-"

// Access is how the processes of a run reach each other. The zero Access means ports without keys.
type Access struct {
	// TokenFile says that they lock their connections with a token. Processes that are started here
	// read it from standard input; others have it in this file.
	TokenFile string
	// Sockets is the folder of their Unix sockets, if all of them are on this machine. It comes
	// before TokenFile.
	Sockets string
}

// flags are the flags of gorbit worker and gorbit train. Token reports whether the process reads the
// token from standard input, as it does where it is started here.
func (a Access) flags(here bool) (flags []string, token bool) {
	switch {
	case a.Sockets != "":
		return []string{"--sockets", a.Sockets}, false
	case a.TokenFile == "":
		return nil, false
	case here:
		return []string{"--token-file", fromInput}, true
	}
	return []string{"--token-file", a.TokenFile}, false
}

// Make returns the commands of a plan. Program is what runs on this machine;
// on others it is "gorbit", from their PATH. The arguments are those of gorbit train.
func (p Plan) Make(program string, by Access, args []string) (Commands, error) {
	if err := p.Validate(); err != nil {
		return Commands{}, &PlanError{Err: err}
	}
	for _, a := range args {
		for _, flag := range planned {
			if a == flag || strings.HasPrefix(a, flag+"=") {
				return Commands{}, &ArgumentError{flag}
			}
		}
	}
	var c Commands
	chief := append([]string{program, "train"}, level(p.LogLevel.Chief)...)
	if !p.workers() {
		strategy, on := p.Strategy, p.Hosts[0].Devices
		if d, err := devices.Parse(on); err == nil && (strategy == "" || strategy == devices.Auto) && d.Count > 1 {
			strategy = devices.Mirrored
		}
		if strategy != "" {
			chief = append(chief, "--strategy", strategy)
		}
		if on != "" {
			chief = append(chief, "--devices", on)
		}
		if n := p.Hosts[0].Threads; n > 0 {
			chief = append(chief, "--set", fmt.Sprintf("runtime.intra_op_threads=%d", n))
		}
	} else {
		var addresses []string
		for i, h := range p.Hosts {
			c.Workers = append(c.Workers, h.worker(i, program, p.LogLevel.Workers, by))
			addresses = append(addresses, h.Address)
		}
		chief = append(chief, "--strategy", devices.MultiWorker, "--workers", strings.Join(addresses, ","))
		flags, token := by.flags(true)
		chief, c.Chief.Token = append(chief, flags...), token
	}
	c.Chief.Name, c.Chief.Local, c.Chief.Args = "train", true, append(chief, args...)
	return c, nil
}

func (h Host) worker(i int, program, logLevel string, by Access) Command {
	c := Command{Name: fmt.Sprintf("worker %d", i), Address: h.Address, Local: h.local() || h.SSH != ""}
	if !h.local() {
		program = "gorbit"
	}
	c.Args = append([]string{program, "worker"}, level(logLevel)...)
	c.Args = append(c.Args, "--listen", h.Address)
	if h.Devices != "" {
		c.Args = append(c.Args, "--devices", h.Devices)
	}
	if h.Threads > 0 {
		c.Args = append(c.Args, "--threads", fmt.Sprint(h.Threads))
	}
	flags, token := by.flags(c.Local)
	c.Args, c.Token = append(c.Args, flags...), token
	if h.SSH != "" {
		// A worker whose ssh is gone learns it by the end of its input only.
		c.Args = append(c.Args, "--end-with-input")
		c.Args = []string{"ssh", "-T", "-o", "BatchMode=yes", h.SSH, c.String()}
	}
	return c
}

func level(l string) []string {
	if l == "" {
		return nil
	}
	return []string{"--log-level", l}
}
