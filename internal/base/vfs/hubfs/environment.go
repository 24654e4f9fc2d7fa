package hubfs

import (
	"cmp"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// Environment returns the account that the environment describes, by the names that Hugging Face's
// programs use: HF_ENDPOINT, HF_HUB_DOWNLOAD_TIMEOUT in seconds, and for the token HF_TOKEN,
// HUGGING_FACE_HUB_TOKEN, or the file that a login writes (HF_TOKEN_PATH, HF_HOME).
func Environment(log *slog.Logger) (Account, error) {
	a := Account{Endpoint: cmp.Or(os.Getenv("HF_ENDPOINT"), DefaultEndpoint), Log: log, Attempts: 5, Wait: time.Second}
	if text := os.Getenv(timeoutVariable); text != "" {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil || !(seconds > 0 && seconds <= 3600) {
			return a, fault.Usagef("%s is %q; expected a number of seconds, more than 0", timeoutVariable, text)
		}
		a.Stall = time.Duration(seconds * float64(time.Second))
	}
	var err error
	a.Token, err = token()
	return a, err
}

const (
	timeoutVariable = "HF_HUB_DOWNLOAD_TIMEOUT"
	offlineVariable = "HF_HUB_OFFLINE"
)

func token() (string, error) {
	if token := cmp.Or(os.Getenv("HF_TOKEN"), os.Getenv("HUGGING_FACE_HUB_TOKEN")); token != "" {
		return strings.TrimSpace(token), nil
	}
	path := expand(os.Getenv("HF_TOKEN_PATH"))
	if path == "" {
		home, err := home()
		if err != nil {
			return "", nil // without a home there is no token
		}
		path = filepath.Join(home, "token")
	}
	content, err := vfs.ReadBounded(path, 1<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(content)), err
}

// home is the folder of Hugging Face's programs.
func home() (string, error) {
	if home := os.Getenv("HF_HOME"); home != "" {
		return expand(home), nil
	}
	if cache := os.Getenv("XDG_CACHE_HOME"); cache != "" {
		return filepath.Join(expand(cache), "huggingface"), nil
	}
	user, err := os.UserHomeDir()
	return filepath.Join(user, ".cache", "huggingface"), err
}

// cacheFolder is the folder of what was downloaded.
func cacheFolder() (string, error) {
	if cache := cmp.Or(os.Getenv("HF_HUB_CACHE"), os.Getenv("HUGGINGFACE_HUB_CACHE")); cache != "" {
		return filepath.Abs(expand(cache))
	}
	home, err := home()
	if err != nil {
		return "", fault.Usagef("no folder for files of a hub: %w; set HF_HOME", err)
	}
	return filepath.Abs(filepath.Join(home, "hub"))
}

// expand replaces the ~ of a user's home, which a shell leaves in the value of a variable.
func expand(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if user, err := os.UserHomeDir(); err == nil {
			return filepath.Join(user, rest)
		}
	}
	return path
}

// offline reports whether the environment forbids to ask the hub.
func offline() bool {
	switch strings.ToUpper(os.Getenv(offlineVariable)) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}
