package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/data/pixels"
	"github.com/gorbit-ml/gorbit/internal/data/table"
)

// ImagesTask is the task of images in folders by class, DIR/CLASS/FILE, as of Keras'
// image_dataset_from_directory and Hugging Face's imagefolder, or in Parquet files as its datasets write them. A
// folder is read as a table with the columns FileColumn and ClassColumn, by a schema of its own.
const ImagesTask = "images"

// The columns of a folder of images, and the features that are made of them.
const (
	FileColumn  = "file"  // the path in the folder: image
	ClassColumn = "class" // the name of the folder that it is in: label

	imageFeature = "image"
	classFeature = "label"
)

// images reports whether images are converted by their classes.
func (c *Config) images() bool { return c.Task == ImagesTask && c.Schema == "" }

// validateImages checks the settings of ImagesTask.
func (c *Config) validateImages(fail func(format string, args ...any)) {
	if c.ImageShape != nil && !c.images() {
		fail("a shape of images is given, which is for task %s; name it in the schema", ImagesTask)
	}
	if c.ImageColumn != "" && !c.images() {
		fail("a column of images is given, which is for task %s; name it in the schema", ImagesTask)
	}
	if !c.images() {
		return
	}
	if c.TextColumn != "" || c.PairColumn != "" || len(c.Labels) > 0 || c.LabelThreshold != nil || c.Vocab != "" || c.Format != Auto || c.NoHeader {
		fail("task %s reads folders of images by class and Parquet files; leave out the tokenizer, the format, columns of texts and labels", ImagesTask)
	}
	if s := c.ImageShape; s != nil && (len(s) != 3 || s[0] < 1 || s[1] < 1 || s[2] != 1 && s[2] != 3) {
		fail("the shape of images is %v; expected HEIGHT,WIDTH,CHANNELS with 1 channel (gray) or 3 (RGB)", s)
	}
}

// imageFolder is the images of a folder, and the names of its folders.
type imageFolder struct {
	classes []string
	rows    []byte // a JSON object for each image
	count   int
	first   string // the path of the first image
	hidden  int64  // files that were left out
}

// readImageFolder lists a folder. Rows of a split that needs no labels may have no class.
func readImageFolder(in Input) (*imageFolder, error) {
	f := &imageFolder{}
	entries, err := f.list(in.Path)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, e := range entries {
		if !e.IsDir() {
			if needsLabels(in.Split) {
				return nil, fault.Usagef("%s is not in the folder of a class; expected %s", vfs.Join(in.Path, e.Name()), vfs.Join(in.Path, "CLASS", e.Name()))
			}
			f.add(&out, e.Name(), "")
			continue
		}
		class := e.Name()
		images, err := f.list(vfs.Join(in.Path, class))
		if err != nil {
			return nil, err
		}
		before := f.count
		for _, image := range images {
			path := class + "/" + image.Name()
			if image.IsDir() {
				advice := "expected images alone in the folder of a class"
				if isSplit(class) {
					advice = fmt.Sprintf("the folder of a split is named by itself, as with --%s %s", splitFlag(class), vfs.Join(in.Path, class))
				}
				return nil, fault.Usagef("%s is a folder; %s", vfs.Join(in.Path, path), advice)
			}
			f.add(&out, path, class)
		}
		if f.count == before {
			return nil, fault.Usagef("%s is the folder of a class and has no images; remove it, or add some", vfs.Join(in.Path, class))
		}
		f.classes = append(f.classes, class)
	}
	if f.count == 0 {
		return nil, fault.Usagef("%s has no images; expected %s", in.Path, vfs.Join(in.Path, "CLASS", "FILE.jpg"))
	}
	f.rows = out.Bytes()
	return f, nil
}

// entry is a file or folder.
type entry interface {
	Name() string
	IsDir() bool
}

// list returns what is in a folder but hidden files, which are counted. What links name counts as it is.
func (f *imageFolder) list(dir string) ([]entry, error) {
	entries, err := vfs.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []entry
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			f.hidden++
			continue
		}
		if e.Type()&fs.ModeSymlink == 0 {
			out = append(out, e)
			continue
		}
		info, err := vfs.Stat(vfs.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		out = append(out, info)
	}
	return out, nil
}

// add adds the row of an image.
func (f *imageFolder) add(out *bytes.Buffer, path, class string) {
	row := map[string]string{FileColumn: path}
	if class != "" {
		row[ClassColumn] = class
	}
	if f.count++; f.count == 1 {
		f.first = path
	}
	_ = json.NewEncoder(out).Encode(row) // texts can always be written
}

// isSplit reports whether a folder has the name of a split rather than of a class.
func isSplit(name string) bool {
	return name == Train || name == Test || slices.Contains(devNames, name)
}

// splitFlag is the flag of a split that is called name.
func splitFlag(name string) string {
	if slices.Contains(devNames, name) {
		return Dev
	}
	return name
}

// readImageFolders lists the folders of a conversion and returns the schema of their tables: an image, of the
// shape that is given or of that of the first image, and its class, one of the folders of the train split, sorted
// by name.
func (c *conversion) readImageFolders() (*schema, error) {
	cfg := c.cfg
	if cfg.ImageColumn != "" || cfg.LabelColumn != "" {
		return nil, fault.Usagef("a column is given, and %s is no Parquet file; leave out --image-column and --label-column", cfg.Inputs[0].Path)
	}
	cfg.folders = make(map[string][]byte)
	var of *imageFolder // that the classes are of
	var in Input
	for _, input := range cfg.Inputs {
		info, err := vfs.Stat(input.Path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			return nil, fault.Usagef("%s is a file; expected a folder with a folder of images for each class, or Parquet files for all splits", input.Path)
		}
		f, err := readImageFolder(input)
		if err != nil {
			return nil, err
		}
		if cfg.folders[input.Path] = f.rows; f.hidden > 0 {
			c.log.Warn("left out hidden files", "folder", input.Path, "files", f.hidden)
		}
		switch {
		case of == nil || input.Split == Train && in.Split != Train:
			of, in = f, input
		case input.Split == in.Split && !slices.Equal(f.classes, of.classes):
			return nil, fault.Usagef("%s has the classes %s, and %s has %s; expected the same", in.Path, table.List(of.classes), input.Path, table.List(f.classes))
		}
	}
	if len(of.classes) > maxLabels {
		return nil, fault.Usagef("%s has %s; expected at most %d", in.Path, words.Count(int64(len(of.classes)), "class"), maxLabels)
	}
	first := func() ([]byte, string, error) {
		path := vfs.Join(in.Path, of.first)
		data, err := vfs.ReadBounded(path, maxScaledFile)
		return data, path, err
	}
	label := &featureSchema{name: classFeature, kind: KindCategory, role: RoleLabel, columns: []string{ClassColumn}, lines: map[string]int{"categories": 1}, categories: of.classes}
	if len(of.classes) == 0 { // images alone
		label = nil
	}
	return cfg.imageSchema(in.Path, FileColumn, label, first)
}

// imageSchema returns the schema of images in a column and of their classes, if there are any, in the feature label.
// first returns the first image, which all must be as, and where it is.
func (c *Config) imageSchema(path, column string, label *featureSchema, first func() ([]byte, string, error)) (*schema, error) {
	image := &featureSchema{name: imageFeature, kind: KindImage, columns: []string{column}, lines: map[string]int{}, shape: c.ImageShape, convertColors: c.ImageShape != nil}
	if c.ImageShape != nil {
		image.resize = string(pixels.Bilinear)
	} else {
		data, where, err := first()
		if err != nil {
			return nil, err
		}
		if image.shape, err = shapeOf(data, where); err != nil {
			return nil, err
		}
	}
	s := &schema{path: path, features: []*featureSchema{image}}
	if label != nil {
		s.features = append(s.features, label)
	}
	for _, f := range s.features {
		if err := f.complete(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// shapeOf returns the shape of an image, which is at where.
func shapeOf(data []byte, where string) (Shape, error) {
	i, err := pixels.Open(data)
	if err != nil {
		return nil, fault.Damagedf("%s is not a PNG or JPEG file: %w", where, err)
	}
	channels, what := channelsOf(i.Colors)
	if channels != 1 && channels != 3 {
		return nil, fault.Usagef("%s is %s; expected gray or RGB; to convert all images, give --image-shape %d,%d,3", where, what, i.Height, i.Width)
	}
	return Shape{int64(i.Height), int64(i.Width), int64(channels)}, nil
}
