package launch

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/exec/devices"
)

// maxHosts bounds what is asked for one by one.
const maxHosts = 1000

// Ask asks for a plan, question by question. An empty answer means the value in brackets, which
// comes from the given plan. An invalid answer is asked for again.
func Ask(in io.Reader, out io.Writer, from Plan) (Plan, error) {
	a := &asker{in: bufio.NewScanner(in), out: out}
	count := a.number("How many worker processes or hosts? (1: this machine alone)", max(1, len(from.Hosts)), 1, maxHosts)
	p := Plan{Strategy: from.Strategy, LogLevel: from.LogLevel}
	for i := range count {
		var h Host
		if i < len(from.Hosts) {
			h = from.Hosts[i]
		}
		p.Hosts = append(p.Hosts, a.host(i, count, h, p.Hosts))
	}
	if count == 1 && p.Hosts[0].Address == "" {
		p.Strategy = a.text("Strategy? (auto, one, mirrored)", cmp.Or(from.Strategy, devices.Auto), func(s string) error {
			if s != devices.Auto && s != devices.One && s != devices.Mirrored {
				return fmt.Errorf("%q is not a strategy; expected auto, one or mirrored", s)
			}
			return nil
		})
	} else {
		p.Strategy = devices.MultiWorker
	}
	p.Precision = a.text("Precision of the export? (float32, bf16, fp16, or any)", cmp.Or(from.Precision, "any"), func(s string) error {
		if s != "any" && !slices.Contains(precisions, s) {
			return fmt.Errorf("%q is not a precision; expected float32, bf16, fp16 or any", s)
		}
		return nil
	})
	if p.Precision == "any" {
		p.Precision = ""
	}
	p.LogLevel.Chief = a.level("Least level to log of the training process?", cmp.Or(from.LogLevel.Chief, "info"))
	if p.workers() {
		p.LogLevel.Workers = a.level("Least level to log of the workers?", cmp.Or(from.LogLevel.Workers, "warn"))
	}
	if a.err != nil {
		return Plan{}, a.err
	}
	return p, p.Validate()
}

// asker asks questions. After an error, every answer is the default.
type asker struct {
	in  *bufio.Scanner
	out io.Writer
	err error
}

// host asks for host i of count, other than those before it.
func (a *asker) host(i, count int, h Host, before []Host) Host {
	if count > 1 {
		workerOf := func(address string) int {
			return slices.IndexFunc(before, func(b Host) bool { return devices.Canonical(b.Address) == devices.Canonical(address) })
		}
		usual := h.Address
		for port := 2222 + i; usual == "" || workerOf(usual) >= 0; port++ {
			usual = fmt.Sprintf("127.0.0.1:%d", port)
		}
		address := a.text(fmt.Sprintf("Address of worker %d, HOST:PORT?", i), usual, func(s string) error {
			if j := workerOf(s); j >= 0 {
				return fmt.Errorf("%s is already the address of worker %d; expected a different port for each worker", s, j)
			}
			return checkAddress(s)
		})
		if address != h.Address {
			h = Host{Address: address, Devices: h.Devices}
		}
	} else {
		h.Address, h.Local = "", nil
	}
	what := "Its devices? (cpu, cpu:2, gpu, gpu:4, or default)"
	h.Devices = a.text(what, cmp.Or(h.Devices, "default"), func(s string) error {
		if s == "default" {
			return nil
		}
		_, err := devices.Parse(s)
		return err
	})
	if h.Devices == "default" {
		h.Devices = ""
	}
	return h
}

func (a *asker) level(question, usual string) string {
	return a.text(question+" ("+strings.Join(logLevels, ", ")+")", usual, func(s string) error { return checkLevel("the level", s) })
}

func (a *asker) number(question string, usual, least, most int) int {
	answer := a.text(question, strconv.Itoa(usual), func(s string) error {
		if n, err := strconv.Atoi(s); err != nil || n < least || n > most {
			return fmt.Errorf("%q is not a number; expected %d to %d", s, least, most)
		}
		return nil
	})
	n, _ := strconv.Atoi(answer)
	return n
}

// text asks until the answer passes the check.
func (a *asker) text(question, usual string, check func(string) error) string {
	for a.err == nil {
		if _, a.err = fmt.Fprintf(a.out, "%s [%s] ", question, usual); a.err != nil {
			break
		}
		if !a.in.Scan() {
			a.err = a.in.Err()
			if a.err == nil {
				a.err = errors.New("the input ended before all questions were answered; no plan was written")
			}
			break
		}
		answer := cmp.Or(strings.TrimSpace(a.in.Text()), usual)
		err := check(answer)
		if err == nil {
			return answer
		}
		_, a.err = fmt.Fprintf(a.out, "%v\n", err)
	}
	return usual
}
