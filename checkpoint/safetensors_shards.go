package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// shardsSuffix ends the name of a file of JSON that says in which files of safetensors the tensors of a
// model are.
const shardsSuffix = ".safetensors.index.json"

// openShards opens the files of safetensors that an index names, next to it. Each must have the tensors
// that the index says, and no other ones.
func openShards(path string) (_ *Safetensors, err error) {
	content, err := vfs.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("open weights: %w", err)
	}
	var index struct {
		Of map[string]string `json:"weight_map"`
	}
	damaged := func(format string, args ...any) error {
		return fault.Damagedf("%s: %s", path, fmt.Sprintf(format, args...))
	}
	if err := json.Unmarshal(content, &index); err != nil || len(index.Of) == 0 {
		return nil, damaged("is no index of safetensors; expected an object with a weight_map")
	}
	names := slices.Compact(slices.Sorted(maps.Values(index.Of)))
	if len(names) > mostShards {
		return nil, damaged("names %d files; expected at most %d", len(names), mostShards)
	}
	all := &Safetensors{path: path, byName: make(map[string]int, len(index.Of)), sums: map[string]string{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, all.Close())
		}
	}()
	for i, name := range names {
		if name != filepath.Base(name) || !strings.HasSuffix(name, ".safetensors") {
			return nil, damaged("names the file %q; expected one of safetensors in its own folder", name)
		}
		part, err := OpenSafetensors(filepath.Join(filepath.Dir(path), name))
		if err != nil {
			return nil, err
		}
		all.files = append(all.files, part.files...)
		if all.metadata == nil {
			all.metadata = part.metadata
		}
		if part.sums == nil || all.sums == nil {
			all.sums = nil // all have them, or none
		} else {
			maps.Copy(all.sums, part.sums)
		}
		for k, e := range part.entries {
			if index.Of[e.Name] != name {
				return nil, damaged("tensor %q is in %s; the index says %q", e.Name, name, index.Of[e.Name])
			}
			e.Shard = i
			all.byName[e.Name] = len(all.entries)
			all.entries, all.types = append(all.entries, e), append(all.types, part.types[k])
		}
	}
	for name, file := range index.Of {
		if _, ok := all.byName[name]; !ok {
			return nil, damaged("tensor %q is not in %s, where the index says it is", name, file)
		}
	}
	return all, nil
}
