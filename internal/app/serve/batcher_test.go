package serve

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// batches starts a batcher whose calls are told and wait for hold.
func batches(c batcherConfig) (b *batcher, calls chan []item, hold chan struct{}) {
	calls, hold = make(chan []item, 100), make(chan struct{})
	c.lanes, c.queue, c.examples = max(1, c.lanes), max(8, c.queue), max(8, c.examples)
	c.batched = func([]item, time.Duration) {}
	c.compute = func(batch []item) ([]predict.Result, error) {
		calls <- batch
		<-hold
		return make([]predict.Result, len(batch)), nil
	}
	return newBatcher(c), calls, hold
}

// costs returns the costs of a batch.
func costs(batch []item) (out []int) {
	for _, i := range batch {
		out = append(out, i.cost)
	}
	return out
}

func withCosts(costs ...int) []example {
	out := make([]example, len(costs))
	for i, c := range costs {
		out[i].cost = c
	}
	return out
}

// TestBatches holds which examples share a batch while the only lane computes another one.
func TestBatches(t *testing.T) {
	for _, tt := range []struct {
		name    string
		config  batcherConfig
		waiting []example
		want    []string
	}{
		{"all fit", batcherConfig{cost: 10}, withCosts(1, 2, 3), []string{"[1 2 3]"}},
		{"shorter ones fill up", batcherConfig{cost: 10}, withCosts(6, 5, 4, 3), []string{"[6 4]", "[5 3]"}},
		{"too large alone", batcherConfig{cost: 10}, withCosts(11, 1, 12), []string{"[11]", "[1]", "[12]"}},
		{"the most examples", batcherConfig{cost: 100, examples: 8}, withCosts(1, 1, 1, 1, 1, 1, 1, 1, 1), []string{"[1 1 1 1 1 1 1 1]", "[1]"}},
		{"other keys", batcherConfig{cost: 10}, []example{{cost: 1, key: "a"}, {cost: 2, key: "b"}, {cost: 3, key: "a"}}, []string{"[1 3]", "[2]"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			tt.config.queue = 100
			b, calls, hold := batches(tt.config)
			var done sync.WaitGroup
			ask := func(e []example) {
				done.Go(func() {
					if _, err := b.answer(t.Context(), e); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
			ask(withCosts(1))
			<-calls
			ask(tt.waiting)
			close(hold)
			done.Wait()
			b.close()
			close(calls)
			var got []string
			for c := range calls {
				got = append(got, fmt.Sprint(costs(c)))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s: batches of %v, expected %v", tt.name, got, tt.want)
			}
		})
	}
}

// TestLanesShare holds that free lanes divide what waits.
func TestLanesShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, calls, hold := batches(batcherConfig{cost: 100, lanes: 2})
		synctest.Wait()
		go b.answer(t.Context(), withCosts(5, 5, 5, 5))
		synctest.Wait()
		if one, two := <-calls, <-calls; len(one) != 2 || len(two) != 2 {
			t.Errorf("two lanes computed %v and %v, expected half each", costs(one), costs(two))
		}
		close(hold)
		b.close()
	})
}

// TestDelay holds that examples wait for others as long as the delay, and no longer than their batch is
// full.
func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, calls, hold := batches(batcherConfig{cost: 10, delay: time.Second})
		close(hold)
		begin := time.Now()
		go b.answer(t.Context(), withCosts(3))
		time.Sleep(time.Second / 2)
		go b.answer(t.Context(), withCosts(4))
		if got := <-calls; len(got) != 2 || time.Since(begin) != time.Second {
			t.Errorf("a batch of %v after %v, expected both after 1s", costs(got), time.Since(begin))
		}
		begin = time.Now()
		go b.answer(t.Context(), withCosts(5, 5))
		if got := <-calls; len(got) != 2 || time.Since(begin) != 0 {
			t.Errorf("a full batch of %v after %v, expected it at once", costs(got), time.Since(begin))
		}
		b.close()
	})
}

// TestGone holds that the examples of a client that is gone are dropped from the queue, and that the
// queue is limited.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, calls, hold := batches(batcherConfig{cost: 10, queue: 8})
		go b.answer(t.Context(), withCosts(1))
		<-calls
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			_, err := b.answer(ctx, withCosts(2, 2, 2, 2))
			gone <- err
		}()
		go b.answer(t.Context(), withCosts(3))
		synctest.Wait()
		if _, err := b.answer(t.Context(), withCosts(1, 1, 1, 1)); !errors.Is(err, errFull) {
			t.Errorf("got %v from a full queue", err)
		}
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if b.waiting() != 1 {
			t.Errorf("%d examples wait, expected 1", b.waiting())
		}
		close(hold)
		if got := <-calls; !slices.Equal(costs(got), []int{3}) {
			t.Errorf("a batch of %v, expected what is left", costs(got))
		}
		b.close()
		if _, err := b.answer(t.Context(), withCosts(1)); !errors.Is(err, errClosed) {
			t.Errorf("got %v from a closed batcher", err)
		}
	})
}

// TestOneBadRequest holds that a request whose examples the model refuses fails alone.
func TestOneBadRequest(t *testing.T) {
	m := textModel{calls: make(chan []text.Encoding, 10), hold: make(chan struct{})}
	s := start(t, config(), texts(t, m))
	bodies := map[string]int{`{"text": "a"}`: 200, `{"text": "bad"}`: 500, `{"text": "b"}`: 200}
	var done sync.WaitGroup
	done.Go(func() { ask(s, "POST", "/v1/models/words:answer", `{"text": "c"}`) })
	<-m.calls
	for body, want := range bodies {
		done.Go(func() {
			if code, got := ask(s, "POST", "/v1/models/words:answer", body); code != want {
				t.Errorf("%s: status %d, %s; expected %d", body, code, got, want)
			}
		})
	}
	for s.models["words"].batcher.waiting() < len(bodies) {
		time.Sleep(time.Millisecond)
	}
	close(m.hold)
	done.Wait()
}

// TestStatuses holds the statuses of requests that were not answered in time, that found a full
// queue, and that a server refuses while it stops.
func TestStatuses(t *testing.T) {
	c := config()
	c.MaxExamples, c.QueueExamples, c.Timeout = 1, 1, 20*time.Millisecond
	m := textModel{calls: make(chan []text.Encoding, 10), hold: make(chan struct{})}
	s, err := New([]Model{texts(t, m)}, c)
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	expect := func(want int) {
		if code, body := ask(s, "POST", "/v1/models/words:predict", `{"instances": ["a"]}`); code != want {
			t.Errorf("status %d, %s; expected %d", code, body, want)
		}
	}
	done.Go(func() { expect(http.StatusGatewayTimeout) })
	<-m.calls // of the first one, which is held
	done.Wait()
	s.models["words"].batcher.queue = append(s.models["words"].batcher.queue, item{call: &call{ctx: t.Context(), left: 2, since: time.Now(), results: make([]predict.Result, 1)}})
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("POST", "/v1/models/words:predict", strings.NewReader(`{"instances": ["a"]}`)))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("status %d with headers %v from a full queue", w.Code, w.Header())
	}
	close(m.hold)
	s.Close()
	expect(http.StatusServiceUnavailable)
}

// TestBatchesLaws sends requests of all sizes at once: each gets its own answers, in its order, however
// they were batched.
func TestBatchesLaws(t *testing.T) {
	c := config()
	c.BatchTokens = 12
	m := texts(t, textModel{})
	m.Lanes = 3
	s := start(t, c, m)
	words := []string{"a", "b", "c"}
	var done sync.WaitGroup
	for seed := range uint64(40) {
		done.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 1))
			var list []string
			for range 1 + rng.IntN(9) {
				text := words[rng.IntN(3)]
				for range rng.IntN(3) {
					text += " " + words[rng.IntN(3)]
				}
				list = append(list, text)
			}
			var alone []string
			for _, text := range list {
				_, got := ask(s, "POST", "/v1/models/words:predict", fmt.Sprintf(`{"instances": [%q]}`, text))
				alone = append(alone, strings.TrimSuffix(strings.TrimPrefix(got, `{"predictions":[`), "]}"))
			}
			_, got := ask(s, "POST", "/v1/models/words:predict", `{"instances": ["`+strings.Join(list, `", "`)+`"]}`)
			if want := `{"predictions":[` + strings.Join(alone, ",") + "]}"; got != want {
				t.Errorf("%q together: %s, expected %s", list, got, want)
			}
		})
	}
	done.Wait()
}
