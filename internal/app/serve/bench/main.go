// Command bench loads gorbit serve for a benchmark: make bench BENCH="--only serve".
//
// It starts the server of a run or an exported model, and asks it for answers to pairs of texts, one in
// a request, with a number of clients that each wait for an answer before they ask again. For every
// number of clients it prints the answers per second and the times of requests.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	program := flag.String("gorbit", "bin/gorbit", "the `program`")
	model := flag.String("model", "", "`folder` of a run or an exported model")
	pairs := flag.String("pairs", "", "`file` with two texts on each line, a tab between them")
	clients := flag.String("clients", "1,8,32", "numbers of clients")
	seconds := flag.Float64("seconds", 10, "time of each number of clients")
	flag.Parse()
	if err := run(*program, *model, *pairs, *clients, time.Duration(*seconds*float64(time.Second))); err != nil {
		log.Fatal("bench: ", err)
	}
}

func run(program, model, pairs, clients string, each time.Duration) error {
	bodies, err := requests(pairs)
	if err != nil {
		return err
	}
	server := exec.Command(program, "serve", "bench="+model, "--listen", "127.0.0.1:0", "--log-level", "error")
	server.Stderr = os.Stderr
	stdout, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		return err
	}
	defer server.Wait()
	defer server.Process.Signal(os.Interrupt)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		return fmt.Errorf("gorbit serve printed %q: %w", line, err)
	}
	url := address + "/v1/models/bench:predict"
	found := make(map[string]float64)
	for _, word := range strings.Split(clients, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return fmt.Errorf("clients are %q; expected numbers from 1", clients)
		}
		if _, err := load(url, bodies, n, each/4); err != nil { // a warm-up
			return err
		}
		times, err := load(url, bodies, n, each)
		if err != nil {
			return err
		}
		slices.Sort(times)
		found[fmt.Sprintf("rate_%d", n)] = float64(len(times)) / each.Seconds()
		found[fmt.Sprintf("p50_%d", n)] = times[len(times)/2].Seconds()
		found[fmt.Sprintf("p99_%d", n)] = times[len(times)*99/100].Seconds()
		found["rate"] = found[fmt.Sprintf("rate_%d", n)]
	}
	info, err := json.Marshal(found)
	if err != nil {
		return err
	}
	fmt.Printf("bench: info %s\n", info)
	return nil
}

// requests returns a request for each line of a file.
func requests(path string) (bodies []string, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(content)) {
		a, b, _ := strings.Cut(strings.TrimRight(line, "\n"), "\t")
		body, err := json.Marshal(map[string]any{"instances": []any{map[string]string{"text": a, "text_pair": b}}})
		if err != nil {
			return nil, err
		}
		bodies = append(bodies, string(body))
	}
	if len(bodies) == 0 {
		return nil, fmt.Errorf("%s has no lines", path)
	}
	return bodies, nil
}

// load asks for answers with some clients for a time, and returns the times of the requests that ended
// within it.
func load(url string, bodies []string, clients int, each time.Duration) ([]time.Duration, error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	var next atomic.Int64
	var mu sync.Mutex
	var times []time.Duration
	var failed error
	var done sync.WaitGroup
	end := time.Now().Add(each)
	for range clients {
		done.Go(func() {
			for time.Now().Before(end) {
				start := time.Now()
				err := ask(client, url, bodies[int(next.Add(1)-1)%len(bodies)])
				took, now := time.Since(start), time.Now()
				mu.Lock()
				if err != nil {
					failed = err
				} else if now.Before(end) {
					times = append(times, took)
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	done.Wait()
	if failed == nil && len(times) == 0 {
		failed = fmt.Errorf("no answer of %d clients within %v", clients, each)
	}
	return times, failed
}

func ask(client *http.Client, url, body string) error {
	response, err := client.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", response.StatusCode, answer)
	}
	return err
}
