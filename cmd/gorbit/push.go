package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/internal/app/hub"
	"github.com/gorbit-ml/gorbit/internal/app/servable"
	"github.com/gorbit-ml/gorbit/internal/base/made"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/hubfs"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/params"
)

// pushFlags are the flags of gorbit push.
type pushFlags struct {
	run     runFlags
	config  hub.Config
	folder  string
	format  string
	message string
	follow  bool
	what    string // which checkpoints --follow pushes, and what of them
	every   int
	timeout time.Duration
}

// The values of --strategy.
const (
	pushEverySave      = "every_save"
	pushEnd            = "end"
	pushCheckpoint     = "checkpoint"
	pushAllCheckpoints = "all_checkpoints"
)

var pushStrategies = []string{pushEverySave, pushEnd, pushCheckpoint, pushAllCheckpoints}

func newPush(g *globals) *cobra.Command {
	var p pushFlags
	cmd := &cobra.Command{
		Use:   "push --repo OWNER/NAME (FOLDER | --run FOLDER) [flags]",
		Short: "Upload a model to a model hub",
		Long: `Uploads a folder that gorbit export wrote, or a run's model in the form of Hugging Face's
transformers, to a repository of a model hub, as one commit. The repository is created if
it is not there; it is private unless --public is given.

A push that was interrupted uploads only what is missing when it is made again, and one
that changes nothing makes no commit. Files that only the repository has stay there.

With --follow every new checkpoint of a run is pushed while another process trains it, or
every N-th with --every. A push that fails is reported, and the next one is tried; the
training does not notice. --strategy says what is pushed, by the names of Hugging Face's
hub_strategy.

With --dataset, a folder is pushed to a repository of a dataset.

The token is read from HF_TOKEN, or from the file that Hugging Face's login writes
(HF_TOKEN_PATH, or token below HF_HOME). HF_ENDPOINT names another hub.`,
		Example: `  gorbit export --run runs/reviews --format huggingface --out hf/reviews
  gorbit push hf/reviews --repo acme/reviews
  gorbit push --run runs/reviews --repo acme/reviews --follow --every 5`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return noArgs(cmd, args[1:])
			}
			return nil
		},
	}
	p.run.add(cmd, params.BestOrLatest)
	cmd.Flags().Lookup("run").Usage = "`FOLDER` of a run whose model to push"
	f := cmd.Flags()
	f.StringVar(&p.config.Repo, "repo", "", "repository, `OWNER/NAME` (required)")
	f.StringVar(&p.config.Revision, "revision", "main", "`BRANCH` of the repository")
	f.StringVar(&p.message, "message", "", "first line of the commit (default: says the folder, or the run and its step)")
	f.BoolVar(&p.config.Public, "public", false, "make a repository that all may see, if it has to be created")
	f.StringVar(&p.format, "format", formatHuggingFace, "with --run: what to write of it `huggingface|savedmodel`")
	f.BoolVar(&p.follow, "follow", false, "with --run: push new checkpoints as they are written")
	f.StringVar(&p.what, "strategy", pushEverySave, "with --follow: push the model `every_save|end|checkpoint|all_checkpoints`; with checkpoint also the run with that checkpoint, in the folder last-checkpoint, and with all_checkpoints in folders checkpoint-STEP, to train on from")
	f.BoolVar(&p.config.Dataset, "dataset", false, "push a folder to a repository of a dataset")
	f.IntVar(&p.every, "every", 1, "with --follow: push every N-th new checkpoint, and the last")
	f.DurationVar(&p.timeout, "timeout", 10*time.Minute, "with --follow: how long to wait for the run and for each checkpoint; 0 means no limit")
	help.Group(f, "What to push", "format", "dataset", "follow", "strategy", "every", "timeout")
	help.Group(f, "Where to", "repo", "revision", "message", "public")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			p.folder = args[0]
		}
		if err := p.complete(f.Changed); err != nil {
			return err
		}
		env, err := g.env(cmd.OutOrStdout())
		if err != nil {
			return err
		}
		p.config.Log = env.Log
		if p.folder != "" {
			local, err := vfs.Localize(cmd.Context(), p.folder, nil)
			if err != nil {
				return err
			}
			if runfolder.IsRun(local) {
				return usagef("%s is a run, with its checkpoints and logs; to push its model: gorbit push --run %[1]s --repo %s", p.folder, p.config.Repo)
			}
			if err := verifyWeights(cmd.Context(), local); err != nil {
				return err
			}
			return p.push(cmd.Context(), env, local, cmp.Or(p.message, "Upload "+filepath.Base(filepath.Clean(p.folder))))
		}
		return p.pushModel(cmd.Context(), env)
	}
	return cmd
}

// complete checks the flags and adds what the environment says of the hub.
func (p *pushFlags) complete(changed func(string) bool) error {
	switch {
	case p.config.Repo == "":
		return usagef("--repo is missing; expected the repository to push to, OWNER/NAME")
	case p.run.run == "" && p.run.lacksGraph() != nil:
		return p.run.lacksGraph()
	case p.folder == "" && !p.run.given():
		return usagef("nothing to push; expected a folder that gorbit export wrote, or --run and a run")
	case p.folder != "" && p.run.given():
		return usagef("both a folder and --run are given; expected one of them")
	case p.folder == "" && p.run.check() != nil:
		return p.run.check()
	case p.follow && p.run.run == "" && p.folder == "":
		return usagef("--follow is given with --graph; leave it out: only a run has new checkpoints")
	case p.format != formatSavedModel && p.format != formatHuggingFace:
		return usagef("--format is %q; %s", p.format, words.OneOf(p.format, []string{formatHuggingFace, formatSavedModel}))
	case p.folder != "" && changed("format"):
		return usagef("--format is given without --run; a folder is pushed as it is")
	case p.follow && p.folder != "":
		return usagef("--follow is given without --run; only a run has new checkpoints")
	case !p.follow && (changed("every") || changed("timeout") || changed("strategy")):
		return usagef("--every, --strategy or --timeout is given without --follow; only --follow waits for checkpoints")
	case !slices.Contains(pushStrategies, p.what):
		return usagef("--strategy is %q; %s", p.what, words.OneOf(p.what, pushStrategies))
	case p.what == pushEnd && changed("every"):
		return usagef("--every is given with --strategy end, which pushes the last checkpoint alone; leave out one of them")
	case p.config.Dataset && p.folder == "":
		return usagef("--dataset is given without a folder; expected that of a dataset, as gorbit convert writes it")
	case p.follow && changed("checkpoint"):
		return usagef("--follow pushes new checkpoints; leave out --checkpoint")
	case p.every < 1:
		return usagef("--every is %d; expected 1 or more", p.every)
	case p.timeout < 0:
		return usagef("--timeout is %v; expected 0 (no limit) or more", p.timeout)
	}
	var err error
	if p.config.Account, err = hubfs.Environment(nil); err != nil {
		return err
	}
	return p.config.Validate()
}

// push uploads a folder and says what came of it.
func (p *pushFlags) push(ctx context.Context, env train.Env, folder, message string) error {
	c := p.config
	c.Message = message
	result, err := hub.Push(ctx, c, folder)
	if result.Created {
		kind := "private"
		if c.Public {
			kind = "public"
		}
		fmt.Fprintf(env.Out, "created the %s repository %s\n", kind, c.Repo)
	}
	if err != nil {
		return fmt.Errorf("push to %s: %w", c.Repo, err)
	}
	if result.Commit == "" {
		_, err = fmt.Fprintf(env.Out, "%s has all files already\n", c.Repo)
		return err
	}
	_, err = fmt.Fprintf(env.Out, "pushed %s (%.1f MB sent) to %s\n", words.Count(int64(result.Files), "file"), float64(result.Bytes)/1e6, result.Commit)
	return err
}

// verifyWeights returns an error if the weights in a folder do not have the checksums that gorbit export
// wrote. Those from elsewhere have none.
func verifyWeights(ctx context.Context, folder string) error {
	weights, err := checkpoint.OpenSafetensors(filepath.Join(folder, servable.HuggingFaceWeights))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(weights.Verify(ctx), weights.Close())
}

// pushModel pushes the model of a run's checkpoint, or of all new ones. It is the only process that does.
func (p *pushFlags) pushModel(ctx context.Context, env train.Env) error {
	if p.follow {
		if err := train.AwaitRun(ctx, p.run.run, p.timeout, env); err != nil {
			return err
		}
	}
	release, err := sole(p.run.run, env.Log, p.config.Repo, p.config.Revision)
	if err != nil {
		return err
	}
	defer release()
	if p.follow {
		return p.pushAll(ctx, env)
	}
	_, err = p.pushRun(ctx, env)
	return err
}

// pushRun pushes the model of a run's checkpoint, and returns the checkpoint's step.
func (p *pushFlags) pushRun(ctx context.Context, env train.Env) (int64, error) {
	staged, err := os.MkdirTemp("", "gorbit-push-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(staged)
	out := filepath.Join(staged, path.Base(p.config.Repo)) // the name is the title of the model card
	step, _, err := exportRun(ctx, p.run, env, p.format, servable.Options{Out: out}, false, rounding{})
	if err != nil {
		return 0, err
	}
	switch p.what {
	case pushCheckpoint:
		p.config.Prune = "last-checkpoint"
		err = stageRun(ctx, p.run.run, step, filepath.Join(out, p.config.Prune))
	case pushAllCheckpoints:
		err = stageRun(ctx, p.run.run, step, filepath.Join(out, fmt.Sprintf("checkpoint-%d", step)))
	}
	if err != nil {
		return 0, err
	}
	return step, p.push(ctx, env, out, cmp.Or(p.message, capital(p.run.version(step))+" of "+p.run.title()))
}

// stageRun copies a run to a new folder, with the checkpoint of one step alone: what another run needs to
// train on from it.
func stageRun(ctx context.Context, run string, step int64, to string) error {
	run, err := runfolder.LocalRun(ctx, run, strconv.FormatInt(step, 10))
	if err != nil {
		return err
	}
	files, err := runfolder.FilesAt(run, step)
	if err != nil {
		return err
	}
	for _, name := range files {
		place := filepath.Join(to, filepath.FromSlash(name))
		if err := vfs.MkdirAll(filepath.Dir(place), 0o777); err != nil {
			return err
		}
		if err := vfs.CopyFile(filepath.Join(run, filepath.FromSlash(name)), place); err != nil {
			return err
		}
	}
	return nil
}

// capital begins a text with a capital letter.
func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// pushAll pushes the checkpoints that a training writes until no new one comes. A push that fails does
// not end it; the last one must not fail.
func (p *pushFlags) pushAll(ctx context.Context, env train.Env) error {
	p.run.checkpoint = params.Latest
	seen, pushed := int64(-1), int64(-1)
	for saves := 1; ; saves++ {
		newest, err := train.AwaitCheckpoint(ctx, p.run.run, seen, p.timeout)
		if err != nil {
			return err
		}
		ended := newest == seen
		if newest < 0 {
			return fmt.Errorf("no checkpoint appeared in %s within %v", p.run.run, p.timeout)
		}
		if seen = newest; pushed == newest || !ended && (p.what == pushEnd || saves%p.every != 0) {
			if ended {
				return nil
			}
			continue
		}
		step, err := p.pushRun(ctx, env)
		switch {
		case err == nil:
			pushed = step
		case ended || ctx.Err() != nil:
			return err
		default:
			env.Log.Warn("a checkpoint was not pushed; the next one is tried", "step", newest, "error", err)
		}
		if ended {
			return nil
		}
	}
}

// publish has make write the folder out. If that is in a bucket, make writes a local folder, and
// its files are uploaded, the file last after all others: readers look for that one first. If out
// has it already, the error is fs.ErrExist unless overwrite is set. A folder of another kind is refused.
func publish(ctx context.Context, out, last string, kind made.Kind, overwrite bool, log *slog.Logger, make func(local string) error) error {
	remote, err := vfs.RemoteOf(out)
	if err != nil {
		return usagef("--out: %w", err)
	}
	if remote == nil {
		return make(out)
	}
	if err := made.Room(out, kind, overwrite); err != nil {
		return err
	}
	there := vfs.Join(out, last)
	switch _, err := remote.Stat(there); { // before the work, not after it
	case err == nil && !overwrite:
		if err := remote.Release(ctx, out, log); err != nil {
			return err
		}
		return &fs.PathError{Op: "write", Path: there, Err: fs.ErrExist}
	case err != nil && (!errors.Is(err, fs.ErrNotExist) || errors.Is(err, vfs.ErrNoBucket)):
		return err
	}
	staged, err := remote.Stage()
	if err != nil {
		return err
	}
	defer os.RemoveAll(staged)
	local := filepath.Join(staged, path.Base(out))
	if err := make(local); err != nil {
		return err
	}
	if err := remote.Publish(ctx, local, out, last, overwrite, log); err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	return nil
}

// localFile refuses the path of a file in a bucket, where it is not read.
func localFile(path string) error {
	if vfs.Scheme(path) != "" {
		return usagef("%s is not on this machine, where it must be; copy it first, as with gcloud storage cp %s .", path, path)
	}
	return nil
}

// localFolder refuses the path of a folder in a bucket. instead is what to do instead.
func localFolder(path, instead string) error {
	if vfs.Scheme(path) != "" {
		return usagef("%s is in a bucket; expected a folder of this machine; %s", path, instead)
	}
	return nil
}
