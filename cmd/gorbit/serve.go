package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/dense"
	"github.com/gorbit-ml/gorbit/generate"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/app/asked"
	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/internal/app/saved"
	"github.com/gorbit-ml/gorbit/internal/app/serve"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/layout"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/exec/peertls"
	"github.com/gorbit-ml/gorbit/internal/exec/reclaim"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/params"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// serveFlags holds the flags of gorbit serve.
type serveFlags struct {
	run                    runFlags // what is read of every run; its folder is that of an argument
	listen                 string
	cert, key              string
	tokens                 string
	config                 serve.Config
	stop                   serve.Listen
	sequences, cacheTokens int
}

func newServe(g *globals) *cobra.Command {
	s := &serveFlags{config: serve.DefaultConfig()}
	cmd := &cobra.Command{
		Use:   "serve [NAME=]FOLDER... [flags]",
		Short: "Answer over HTTP with trained models",
		Long: `Answers texts, or examples of features, over HTTP: JSON in and out. A folder is a
run, a model that gorbit export wrote, or a folder of versions of such models, of
which the greatest is served. A model's name is that of its folder unless NAME=
gives another.

  POST /v1/models/NAME:answer    answers as gorbit predict gives them
  POST /v1/models/NAME:predict   TensorFlow Serving's form; also :classify and
                                 :regress
  POST /v1/completions           OpenAI's form, of runs of task lm
  POST /v1/chat/completions      the same, of those with a chat template
  GET  /v1/models                the models
  GET  /v1/models/NAME           its state; with /metadata, its signature
  GET  /healthz, /readyz, /metrics

Examples of concurrent requests are computed together, in rows without padding. The
first line of the output is the address. SIGTERM and SIGINT stop the server when the
requests in progress are answered.

By default, only this machine reaches the server. --token-file names a file with a
token on each line, of which every request must then have one.`,
		Example: `  gorbit serve runs/mrpc
  gorbit serve reviews=served/reviews digits=served/digits --listen 127.0.0.1:8501
  curl -d '{"text": "A gripping film."}' http://127.0.0.1:8501/v1/models/reviews:answer`,
	}
	s.add(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		env, err := g.env(cmd.ErrOrStderr())
		if err = cmp.Or(err, s.run.lacksGraph()); err != nil {
			return err
		}
		if s.config.Log = env.Log; len(args) == 0 && !s.run.given() {
			return usagef("no model is named; expected the folder of a run or of a model that gorbit export wrote, or --graph; see %s --help", cmd.CommandPath())
		}
		return s.serve(cmd.Context(), args, env, cmd.OutOrStdout())
	}
	return cmd
}

// add adds the flags.
func (s *serveFlags) add(f *pflag.FlagSet) {
	c := &s.config
	f.StringVar(&s.listen, "listen", "127.0.0.1:8501", "`HOST:PORT` to listen on; port 0 is a free one")
	f.StringVar(&s.run.checkpoint, "checkpoint", params.BestOrLatest, "of runs: latest, best, a step, or best-or-latest: the best if the run kept one")
	f.StringArrayVar(&s.run.settings, "set", nil, "of runs: one param, as `SECTION.NAME=VALUE`")
	f.StringVar(&s.cert, "tls-cert", "", "`FILE` of the certificate, in PEM form; with it, HTTPS is served")
	f.StringVar(&s.key, "tls-key", "", "`FILE` of the certificate's key, in PEM form")
	f.StringVar(&s.tokens, "token-file", "", "`FILE` with a bearer token on each line; every request but those for /healthz and /readyz must have one")
	f.IntVar(&c.BatchTokens, "batch-tokens", c.BatchTokens, "most tokens of a batch of texts")
	f.IntVar(&c.BatchExamples, "batch-examples", c.BatchExamples, "most examples of a batch")
	f.DurationVar(&c.BatchDelay, "batch-delay", c.BatchDelay, "how long an example waits for others to fill its batch although the devices are free")
	f.IntVar(&s.sequences, "sequences", asked.DefaultSequences, "task lm: most texts that are continued together")
	f.IntVar(&s.cacheTokens, "cache-tokens", 0, "task lm: tokens that the model's caches hold (default: those of all --sequences, up to a GiB)")
	f.IntVar(&c.QueueExamples, "queue", c.QueueExamples, "most examples that wait for a model; requests beyond them get the status 503")
	f.Int64Var(&c.MaxBodyBytes, "max-body", c.MaxBodyBytes, "most bytes of a request")
	f.Int64Var(&c.MaxBodiesBytes, "max-bodies", 0, fmt.Sprintf("most bytes of all requests in progress; requests beyond them get the status 503 (default: %d times --max-body)", serve.Bodies))
	f.IntVar(&c.MaxConnections, "max-connections", c.MaxConnections, "most connections at a time; others wait")
	f.IntVar(&c.MaxExamples, "max-examples", c.MaxExamples, "most examples of a request")
	f.BoolVar(&c.RefuseLong, "refuse-long", false, "refuse texts that are too long for the model (default: cut them, and say so in the answer)")
	f.DurationVar(&c.Timeout, "timeout", c.Timeout, "longest time for the answers of a request, which then gets the status 504")
	f.DurationVar(&s.stop.StopDelay, "stop-delay", 0, "how long requests are still answered after /readyz said that the server stops")
	f.DurationVar(&s.stop.StopTimeout, "stop-timeout", 30*time.Second, "how long requests in progress may take when the server stops")
	help.Group(f, "The models", "checkpoint", "set")
	s.run.addWeights(f)
	help.Group(f, "Who may ask", "listen", "token-file", "tls-cert", "tls-key")
	help.Group(f, "Batches", "batch-tokens", "batch-examples", "batch-delay", "sequences", "cache-tokens")
	help.Group(f, "Limits", "max-body", "max-bodies", "max-examples", "max-connections", "queue", "timeout", "refuse-long")
	help.Group(f, "The end", "stop-delay", "stop-timeout")
}

// serve answers requests until the context is done.
func (s *serveFlags) serve(ctx context.Context, args []string, env train.Env, out io.Writer) error {
	if s.stop.StopDelay < 0 || s.stop.StopTimeout < 0 {
		return usagef("--stop-delay is %v and --stop-timeout is %v; expected 0 or more", s.stop.StopDelay, s.stop.StopTimeout)
	}
	if err := devices.CheckListen(s.listen); err != nil {
		return usagef("--listen: %w", err)
	}
	if err := s.secrets(); err != nil {
		return err
	}
	if err := s.config.Validate(); err != nil {
		return usagef("%w", err)
	}
	on, err := s.bind(env.Log)
	if err != nil {
		return err
	}
	defer on.Close()
	var models []serve.Model
	if s.run.given() {
		r := s.run
		if len(args) > 0 { // --checkpoint is of these
			r.checkpoint = params.BestOrLatest
			r.changed = func(flag string) bool { return flag != "checkpoint" && s.run.changed(flag) }
		}
		m, closeModel, err := s.openRun(ctx, r, r.title(), env)
		if err != nil {
			return err
		}
		defer closeModel()
		models = append(models, m)
	}
	for _, arg := range args {
		m, closeModel, err := s.open(ctx, arg, env)
		if err != nil {
			return err
		}
		defer closeModel()
		models = append(models, m)
	}
	server, err := serve.New(models, s.config)
	if err != nil {
		return usagef("%w", err)
	}
	if err := server.Warm(ctx); err != nil {
		server.Close()
		return err
	}
	reclaim.Memory()
	reclaim.Files()
	scheme := "http"
	if s.stop.Certificate != nil {
		scheme = "https"
	}
	fmt.Fprintf(out, "listening on %s://%s\n", scheme, on.Addr())
	return server.Serve(ctx, on, s.stop)
}

// bind takes the address, before the models are loaded, which may take long. Clients that come meanwhile
// wait.
func (s *serveFlags) bind(log *slog.Logger) (net.Listener, error) {
	on, err := net.Listen("tcp", s.listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("--listen %s: another process listens there; stop it, or choose another port, 0 for a free one", s.listen)
	}
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	if serve.Loopback(on.Addr()) {
		return on, nil
	}
	if s.stop.Certificate == nil {
		log.Warn("other machines reach this server, and what they send is not encrypted; use --tls-cert and --tls-key", "address", on.Addr().String())
	}
	if s.tokens == "" {
		log.Warn("other machines reach this server, and it answers all of them; use --token-file", "address", on.Addr().String())
	}
	return on, nil
}

// maxTokenFileBytes is the most that a file of tokens may have.
const maxTokenFileBytes = 1 << 20

// secrets reads the files of the certificate and of the tokens.
func (s *serveFlags) secrets() error {
	if (s.cert == "") != (s.key == "") {
		return usagef("--tls-cert is %q and --tls-key is %q; expected both, or neither", s.cert, s.key)
	}
	if s.cert != "" {
		pair, err := peertls.ReadPair(s.cert, s.key)
		if err != nil {
			return usagef("%w", err)
		}
		s.stop.Certificate = pair
	}
	if s.tokens == "" {
		return nil
	}
	content, err := peertls.ReadSecret("--token-file", s.tokens, maxTokenFileBytes)
	if err != nil {
		return usagef("%w", err)
	}
	lines := bufio.NewScanner(strings.NewReader(string(content)))
	for lines.Scan() {
		if token := strings.TrimSpace(lines.Text()); token != "" {
			s.config.Tokens = append(s.config.Tokens, token)
		}
	}
	if len(s.config.Tokens) == 0 {
		return usagef("--token-file %s has no tokens; expected one on each line", s.tokens)
	}
	return lines.Err()
}

// open opens the model of an argument, [NAME=]FOLDER, for serving.
func (s *serveFlags) open(ctx context.Context, arg string, env train.Env) (serve.Model, func(), error) {
	name, folder, named := strings.Cut(arg, "=")
	if !named {
		name, folder = "", arg
	}
	if folder == "" || named && name == "" {
		return serve.Model{}, nil, usagef("%q is not a model; expected FOLDER or NAME=FOLDER", arg)
	}
	folder, version := newestVersion(folder)
	if !named {
		name = modelName(folder)
	}
	if isModel(folder) {
		local, err := vfs.Localize(ctx, folder, nil)
		if err != nil {
			return serve.Model{}, nil, err
		}
		model, err := saved.Open(local, env.AllowOps)
		if err != nil {
			return serve.Model{}, nil, err
		}
		m := savedModel(model, name, version)
		if model.Maker != nil {
			if m.Generates, err = s.generates(ctx, *model.Maker, model.Tokenizer, env.Log, model.Generator); err != nil {
				closeQuietly(model, env.Log)
				return serve.Model{}, nil, err
			}
		}
		env.Log.Info("serving", "model", name, "folder", folder, "version", version, "lanes", m.Lanes)
		return m, func() { closeQuietly(model, env.Log) }, nil
	}
	r := s.run
	r.run, r.weights, r.changed = folder, train.Weights{}, nil
	return s.openRun(ctx, r, name, env)
}

// openRun opens the model of a run, or of a graph with weights, for serving.
func (s *serveFlags) openRun(ctx context.Context, r runFlags, name string, env train.Env) (serve.Model, func(), error) {
	run, step, err := r.open(ctx, env, true)
	if err != nil {
		return serve.Model{}, nil, err
	}
	m, err := runModel(run, name, step)
	if err == nil && run.Generates() {
		m.Generates, err = s.generates(ctx, run.Maker(), m.Texts.Tokenizer, env.Log, run.Generator)
	}
	if err != nil {
		run.Close()
		return serve.Model{}, nil, err
	}
	env.Log.Info("serving", "model", name, "run", cmp.Or(r.run, r.weights.Graph), "step", step, "lanes", m.Lanes)
	return m, func() { closeQuietly(run, env.Log) }, nil
}

// generates returns what makes texts by a model, whose caches open makes.
func (s *serveFlags) generates(ctx context.Context, m predict.Maker, t *text.Tokenizer, log *slog.Logger, open func(context.Context, generate.Limits) (generate.Model, error)) (*serve.Generates, error) {
	l := m.Limits(s.sequences, s.cacheTokens)
	if err := l.Validate(); err != nil {
		return nil, usagef("%w", err)
	}
	g := &serve.Generates{Generation: m.Generation(t, l, log)}
	var err error
	if g.Chat, err = m.NewChat(t); err != nil {
		return nil, err
	}
	g.Model, err = open(ctx, l)
	return g, err
}

// isModel reports whether a folder has a served model.
func isModel(folder string) bool {
	return prepare.Exists(vfs.Join(folder, layout.ModelFile))
}

// newestVersion returns the folder of the greatest version of a folder of versions, or else the folder
// itself, and the version: the folder's name if that is a number, otherwise 1.
func newestVersion(folder string) (string, int64) {
	version := int64(0)
	if entries, err := vfs.ReadDir(folder); err == nil && !isModel(folder) {
		for _, e := range entries {
			if n, err := strconv.ParseInt(e.Name(), 10, 64); err == nil && n > version && isModel(vfs.Join(folder, e.Name())) {
				version = n
			}
		}
	}
	if version > 0 {
		return vfs.Join(folder, strconv.FormatInt(version, 10)), version
	}
	if abs, err := vfs.Abs(folder); err == nil {
		if n, err := strconv.ParseInt(filepath.Base(abs), 10, 64); err == nil && n >= 0 {
			return folder, n
		}
	}
	return folder, 1
}

// savedModel returns the model of a folder that gorbit export wrote.
func savedModel(model *saved.Model, name string, version int64) serve.Model {
	m := serve.Model{Name: name, Version: version, Lanes: model.Lanes, Renderer: model.Renderer,
		Inputs: tensors(model.Inputs), Outputs: tensors(model.Outputs)}
	if model.Tokenizer != nil {
		m.Renderer = predict.Prepare(m.Renderer, predict.Config{Tokenizer: model.Tokenizer, MaxLength: model.MaxLength, DocStride: model.DocStride})
		m.Texts = &serve.Texts{Model: model, Tokenizer: model.Tokenizer, MaxLength: model.MaxLength, Pairs: model.Pairs, Padded: !model.Packs()}
		return m
	}
	l := model.Layout()
	m.Features = &serve.Features{Model: model, Layout: l, Specs: l.Features}
	if rows, tokenizer, err := model.Rows(); err == nil { // an older one may not say it
		m.Features.Rows, m.Features.Tokenizer = rows, tokenizer
	}
	return m
}

// tensors describes tensors of a signature.
func tensors(args []graphs.Arg) []serve.Tensor {
	out := make([]serve.Tensor, len(args))
	for i, a := range args {
		out[i] = serve.Tensor{Name: a.Name, DType: dataset.DType(graphs.DTypeName(a.DType)), Shape: a.Shape}
	}
	return out
}

func closeQuietly(c io.Closer, log *slog.Logger) {
	if err := c.Close(); err != nil {
		log.Warn("a model was not closed", "error", err)
	}
}

// modelName returns the name of a folder's model: that of the folder or, for a version, that of the
// folder of versions.
func modelName(folder string) string {
	abs, err := vfs.Abs(folder)
	if err != nil {
		abs = folder
	}
	name := filepath.Base(abs)
	if _, err := strconv.ParseInt(name, 10, 64); err == nil {
		return filepath.Base(filepath.Dir(abs))
	}
	return name
}

// runModel returns the model of a run, whose checkpoint is loaded.
func runModel(run *train.Run, name string, step int64) (serve.Model, error) {
	m := serve.Model{Name: name, Version: step, Lanes: run.InFlight(), Outputs: tensors(run.Outputs())}
	var err error
	if m.Renderer, err = run.Renderer(); err != nil {
		return m, err
	}
	if run.TakesTexts() {
		tokenizer, err := run.Tokenizer("", nil)
		if err != nil {
			return m, err
		}
		m.Renderer = predict.Prepare(m.Renderer, predict.Config{Tokenizer: tokenizer, MaxLength: run.MaxLength(), DocStride: run.DocStride()})
		m.Inputs = textInputs()
		m.Texts = &serve.Texts{Model: run.TextModel(), Tokenizer: tokenizer, MaxLength: run.MaxLength()}
		if run.Manifest != nil {
			pairs := run.Manifest.Pairs()
			m.Texts.Pairs = &pairs
		}
		return m, nil
	}
	l, ok := run.Layout().(dense.Config)
	if !ok {
		return m, fmt.Errorf("run %s has batches of %T; expected features side by side", run.Folder, run.Layout())
	}
	m.Features = &serve.Features{Model: run.BatchModel(), Layout: l, Specs: l.Features}
	if run.Manifest != nil && len(run.Manifest.Features) > 0 {
		m.Features.Rows = run.RowFeatures()
		if m.Features.Tokenizer, err = convert.TokenizerOf(m.Features.Rows, run.VocabPath()); err != nil {
			return m, err
		}
	}
	for _, f := range run.Inputs() {
		m.Inputs = append(m.Inputs, serve.Tensor{Name: f.Name, DType: dataset.DType(f.DType), Shape: f.Shape})
	}
	return m, nil
}

// textInputs are the tensors of a model that takes texts, as those of a served model.
func textInputs() []serve.Tensor {
	var out []serve.Tensor
	for _, name := range []string{layout.InputIDs, layout.AttentionMask, layout.TokenTypeIDs} {
		out = append(out, serve.Tensor{Name: name, DType: dataset.Int32, Shape: []int64{-1, -1}})
	}
	return out
}
