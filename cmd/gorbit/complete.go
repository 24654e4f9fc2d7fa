package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/train/params"
)

// completes registers what a shell completes after the flags of a command and of those below it.
func completes(cmd *cobra.Command) {
	register := func(f *pflag.Flag) {
		complete := completionOf(f)
		if complete == nil {
			return
		}
		if err := cmd.RegisterFlagCompletionFunc(f.Name, complete); err != nil {
			panic(err) // the flag was just visited
		}
	}
	cmd.Flags().VisitAll(register)
	cmd.PersistentFlags().VisitAll(register)
	switch cmd.Name() {
	case "watch", "track", "report", "serve":
		cmd.ValidArgsFunction = completeRuns
	case "train", "evaluate", "predict", "export":
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, below := range cmd.Commands() {
		completes(below)
	}
}

// completionOf returns what completes the value of a flag, or nil for the files that a shell
// completes by itself.
func completionOf(f *pflag.Flag) cobra.CompletionFunc {
	fixed := func(of []string) cobra.CompletionFunc {
		return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			return beginning(slices.Clone(of), typed), cobra.ShellCompDirectiveNoFileComp
		}
	}
	if v, ok := f.Value.(*paramValue); ok && v.of.Choices != nil {
		return fixed(v.of.Choices)
	}
	form := help.Form(f)
	switch {
	case f.Name == "set":
		return completeSetting
	case f.Name == "run":
		return completeRuns
	case f.Name == "checkpoint":
		return completeCheckpoints
	case f.Name == "task":
		return fixed(convert.Tasks())
	case f.Name == "log-level":
		return fixed([]string{"debug", "info", "warn", "error"})
	case form == "FOLDER":
		return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
	case strings.Contains(form, "|") && !strings.ContainsAny(form, ":/") && strings.ToLower(form) == form:
		return fixed(strings.Split(form, "|"))
	case slices.Contains([]string{"N", "X", "DURATION"}, form):
		return cobra.NoFileCompletions
	}
	return nil
}

// completeSetting completes the name of a param and, for a param of few values, the value.
func completeSetting(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	defaults := params.Defaults().Flat()
	if name, _, found := strings.Cut(typed, "="); found {
		values := params.Choices(name)
		if _, yes := defaults[name].(bool); yes {
			values = []string{"true", "false"}
		}
		var out []string
		for _, v := range values {
			out = append(out, name+"="+v)
		}
		return beginning(out, typed), cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(defaults)) {
		out = append(out, name+"=")
	}
	return beginning(out, typed), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// beginning returns the words that begin as typed.
func beginning(words []string, typed string) []string {
	return slices.DeleteFunc(words, func(word string) bool { return !strings.HasPrefix(word, typed) })
}

// completeRuns completes the folders of runs, and folders on the way to them.
func completeRuns(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	dir, _ := filepath.Split(typed)
	entries, err := os.ReadDir(filepath.Join(dir, "."))
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var runs, others []string
	for _, e := range entries {
		folder := dir + e.Name()
		info, err := os.Stat(folder)
		if err != nil || !info.IsDir() || strings.HasPrefix(e.Name(), ".") || !strings.HasPrefix(folder, typed) {
			continue
		}
		if _, err := os.Stat(filepath.Join(folder, "params.yaml")); err == nil {
			runs = append(runs, folder)
		} else {
			others = append(others, folder+"/")
		}
	}
	if len(runs) > 0 {
		return runs, cobra.ShellCompDirectiveNoFileComp
	}
	return others, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completeCheckpoints completes the checkpoints of the run of --run.
func completeCheckpoints(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	out := []string{params.Latest, params.Best, params.BestOrLatest}
	if f := cmd.Flags().Lookup("run"); f != nil && f.Value.String() != "" {
		found, _ := filepath.Glob(filepath.Join(f.Value.String(), "checkpoints", "ckpt-*.index"))
		for _, file := range found {
			name := strings.TrimSuffix(filepath.Base(file), ".index")
			out = append(out, strings.TrimPrefix(name, "ckpt-"))
		}
	}
	return beginning(out, typed), cobra.ShellCompDirectiveNoFileComp
}
