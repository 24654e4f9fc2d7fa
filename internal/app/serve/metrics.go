package serve

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are what GET /metrics shows. Their names and labels are listed in docs/guide/serve.md.
type metrics struct {
	registry  *prometheus.Registry
	requests  *prometheus.CounterVec   // by model, verb and code
	seconds   *prometheus.HistogramVec // by model and verb
	examples  *prometheus.CounterVec   // by model
	truncated *prometheus.CounterVec   // by model
	batches   *prometheus.HistogramVec // examples of a batch, by model
	tokens    *prometheus.CounterVec   // by model
	waits     *prometheus.HistogramVec // of the first example of a batch, by model
}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	times := prometheus.ExponentialBuckets(0.001, 2, 14) // 1 ms to 8 s
	m := &metrics{
		registry:  prometheus.NewRegistry(),
		requests:  counter("gorbit_requests_total", "Requests, by the status of the response.", "model", "verb", "code"),
		seconds:   histogram("gorbit_request_seconds", "Time from the first byte of a request to the last one of its response.", times, "model", "verb"),
		examples:  counter("gorbit_examples_total", "Examples that were answered.", "model"),
		truncated: counter("gorbit_truncated_total", "Texts that were cut.", "model"),
		batches:   histogram("gorbit_batch_examples", "Examples of a batch.", prometheus.ExponentialBuckets(1, 2, 9), "model"),
		tokens:    counter("gorbit_batch_tokens_total", "Tokens of all batches; of models that take no texts, examples.", "model"),
		waits:     histogram("gorbit_queue_seconds", "Time that the first example of a batch waited in the queue.", times, "model"),
	}
	m.registry.MustRegister(m.requests, m.seconds, m.examples, m.truncated, m.batches, m.tokens, m.waits,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// add adds the metrics of a model.
func (m *metrics) add(s *served) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "gorbit_queue_examples", Help: "Examples that wait.", ConstLabels: prometheus.Labels{"model": s.Name},
	}, func() float64 {
		n := s.batcher.waiting()
		if s.generator != nil {
			n += s.generator.waiting()
		}
		return float64(n)
	}))
}

// batched counts a batch that is about to be computed.
func (m *metrics) batched(model string, batch []item, waited time.Duration) {
	tokens := 0
	for _, i := range batch {
		tokens += i.cost
	}
	m.batches.WithLabelValues(model).Observe(float64(len(batch)))
	m.tokens.WithLabelValues(model).Add(float64(tokens))
	m.waits.WithLabelValues(model).Observe(waited.Seconds())
}

// answered counts a request.
func (m *metrics) answered(model, verb string, code int, took time.Duration) {
	m.requests.WithLabelValues(model, verb, strconv.Itoa(code)).Inc()
	m.seconds.WithLabelValues(model, verb).Observe(took.Seconds())
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
