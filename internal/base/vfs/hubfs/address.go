package hubfs

import (
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// Scheme is that of the paths of a hub.
const Scheme = "hub"

// DefaultRevision is the branch that is meant if none is named.
const DefaultRevision = "main"

// address is a parsed path: a repository at a revision, and a file or folder in it.
type address struct {
	dataset  bool
	repo     string // OWNER/NAME
	revision string // a branch, a tag or a commit
	path     string // "" is the whole repository
}

var (
	addressForm  = regexp.MustCompile(`^hub:(datasets/)?([^/@]+/[^/@]+)(?:@(refs/(?:pr|convert)/[^/]+|[^/]+))?(?:/(.+))?$`)
	repoForm     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$`)
	revisionForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`)
	commitForm   = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// reserved are no owners: the hub has other things there.
var reserved = []string{"datasets", "models", "spaces", "api"}

// CheckRepo returns an error of class fault.Usage if a name is not that of a repository.
func CheckRepo(repo string) error {
	owner, _, _ := strings.Cut(repo, "/")
	if !repoForm.MatchString(repo) || len(repo) > 96 || strings.Contains(repo, "..") || strings.Contains(repo, "--") || slices.Contains(reserved, owner) {
		return fault.Usagef("the repository is %q; expected OWNER/NAME, such as acme/reviews, of letters, digits, dots, - and _", repo)
	}
	return nil
}

// CheckRevision returns an error of class fault.Usage if a name is not that of a branch, tag or commit.
func CheckRevision(revision string) error {
	if !revisionForm.MatchString(revision) || strings.Contains(revision, "..") || len(revision) > 200 {
		return fault.Usagef("the revision is %q; expected the name of a branch, such as main", revision)
	}
	return nil
}

// parse parses hub:[datasets/]OWNER/NAME[@REVISION][/FILE].
func parse(name string) (address, error) {
	m := addressForm.FindStringSubmatch(name)
	if m == nil || m[4] != "" && (m[4] != path.Clean(m[4]) || !filepath.IsLocal(m[4]) || strings.ContainsRune(m[4], 0)) {
		return address{}, fault.Usagef("%s is not the path of a hub; expected hub:OWNER/NAME, hub:OWNER/NAME@REVISION, hub:OWNER/NAME/FILE or hub:datasets/OWNER/NAME/FILE", name)
	}
	a := address{dataset: m[1] != "", repo: m[2], revision: m[3], path: m[4]}
	if a.revision == "" {
		a.revision = DefaultRevision
	}
	if err := CheckRepo(a.repo); err != nil {
		return address{}, fault.Usagef("%s: %w", name, err)
	}
	if err := CheckRevision(a.revision); err != nil {
		return address{}, fault.Usagef("%s: %w", name, err)
	}
	return a, nil
}

// String returns the path, without the revision that is meant anyway.
func (a address) String() string {
	s := Scheme + ":"
	if a.dataset {
		s += "datasets/"
	}
	s += a.repo
	if a.revision != DefaultRevision {
		s += "@" + a.revision
	}
	if a.path != "" {
		s += "/" + a.path
	}
	return s
}

// at returns the address of another path in the repository.
func (a address) at(path string) address {
	a.path = path
	return a
}

// folder is the name of the repository's folder in the cache.
func (a address) folder() string {
	kind := "models"
	if a.dataset {
		kind = "datasets"
	}
	return kind + "--" + strings.ReplaceAll(a.repo, "/", "--")
}

// list is the address, below the hub's, of what a revision has.
func (a address) list() string {
	kind := "models"
	if a.dataset {
		kind = "datasets"
	}
	return "/api/" + kind + "/" + a.repo + "/revision/" + url.PathEscape(a.revision)
}

// content is the address, below the hub's, of a file at a commit.
func (a address) content(commit string) string {
	kind := ""
	if a.dataset {
		kind = "/datasets"
	}
	parts := strings.Split(a.path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return kind + "/" + a.repo + "/resolve/" + commit + "/" + strings.Join(parts, "/")
}

var (
	pickles = []string{".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".dill"}
	// others are files that no model of Gorbit is read from: those of other libraries, and what is shown.
	others = []string{".h5", ".keras", ".msgpack", ".ot", ".onnx", ".onnx_data", ".tflite", ".mlmodel", ".mlpackage", ".gguf", ".xml", ".md", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".pdf"}
	shard  = regexp.MustCompile(`^model-\d+-of-\d+\.safetensors$`)
)

// isPickle reports whether a file has the name of one of Python's pickles.
func isPickle(name string) bool { return slices.Contains(pickles, strings.ToLower(path.Ext(name))) }

// needed returns the files of a folder that a model, a run or a dataset is read from. Of weights in more
// than one form it takes model.safetensors, then its shards. If all weights are pickles, that is an error.
func needed(in string, names []string) ([]string, error) {
	whole, sharded := slices.Contains(names, "model.safetensors"), slices.Contains(names, "model.safetensors.index.json")
	var taken, refused []string
	weights := false
	for _, name := range names {
		ending := strings.ToLower(path.Ext(name))
		switch {
		case isPickle(name):
			refused = append(refused, name)
			continue
		case strings.HasPrefix(path.Base(name), ".") || slices.Contains(others, ending):
			continue
		case ending == ".safetensors" && whole && name != "model.safetensors",
			ending == ".safetensors" && !whole && sharded && !shard.MatchString(name),
			whole && name == "model.safetensors.index.json",
			(whole || sharded) && strings.Contains(name, "/") && ending != ".json": // as a checkpoint to train on from
			continue
		}
		weights = weights || ending == ".safetensors" || ending == ".index" || ending == ".pb"
		taken = append(taken, name)
	}
	if !weights && len(refused) > 0 {
		return nil, fault.Usagef("%s has its weights as pickles alone, such as %s; a pickle is a program that runs when it is read; expected model.safetensors: look for a revision that has it, such as @refs/pr/1", in, refused[0])
	}
	return taken, nil
}
