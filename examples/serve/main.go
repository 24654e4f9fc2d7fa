// Command serve classifies texts over HTTP with a model that gorbit export wrote.
//
//	go run ./examples/serve --model served/reviews
//	curl -d '{"texts": [{"text": "A gripping film."}]}' http://127.0.0.1:8080/predict
//
// It has no authentication, so by default it listens on loopback only; see --listen.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/predict"
	"github.com/gorbit-ml/gorbit/train/predict/served"
)

// Limits of a request.
const (
	maxBytes = 1 << 20
	maxTexts = 256
)

func main() {
	folder := flag.String("model", "", "`folder` that gorbit export wrote")
	listen := flag.String("listen", "127.0.0.1:8080", "`address` to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *folder, *listen); err != nil {
		log.Fatal("serve: ", err)
	}
}

// serve answers requests until the context is done, then finishes the pending ones.
func serve(ctx context.Context, folder, listen string) error {
	model, err := served.Open(folder)
	if err != nil {
		return err
	}
	predictor, err := model.Predictor(32)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	server := &http.Server{Handler: handler(predictor), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute}
	go func() {
		<-ctx.Done()
		server.Shutdown(context.Background())
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// request is the body of POST /predict. The response is a list of answers, such as predict.Label.
type request struct {
	Texts []struct {
		Text string `json:"text"`
		Pair string `json:"text_pair"`
	} `json:"texts"`
}

func handler(predictor *predict.Predictor) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /predict", func(w http.ResponseWriter, r *http.Request) {
		var in request
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBytes)).Decode(&in); err != nil {
			http.Error(w, "invalid request: "+err.Error(), http.StatusBadRequest)
			return
		}
		if n := len(in.Texts); n < 1 || n > maxTexts {
			http.Error(w, fmt.Sprintf("%d texts given; expected 1 to %d", n, maxTexts), http.StatusBadRequest)
			return
		}
		texts := make([]text.Pair, len(in.Texts))
		for i, t := range in.Texts {
			texts[i] = text.Pair{A: t.Text, B: t.Pair}
		}
		answers, err := predictor.Answer(r.Context(), texts...)
		if err != nil {
			log.Print("serve: ", err)
			http.Error(w, "the model failed; see the server's log", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(answers)
	})
	return mux
}
