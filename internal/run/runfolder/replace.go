package runfolder

import "github.com/gorbit-ml/gorbit/internal/base/vfs"

// Replace writes a file atomically: after a crash it has the old or the new content.
func Replace(path string, content []byte) error {
	return vfs.ReplaceFile(path, path+".part", content)
}
