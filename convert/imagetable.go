package convert

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/data/table"
)

// readImages returns the schema of ImagesTask.
func (c *conversion) readImages(ctx context.Context) (*schema, error) {
	parquet := func(in Input) bool { return table.FormatOf(in.Path) == table.Parquet }
	if !slices.ContainsFunc(c.cfg.Inputs, parquet) {
		return c.readImageFolders()
	}
	if i := slices.IndexFunc(c.cfg.Inputs, func(in Input) bool { return !parquet(in) }); i >= 0 {
		return nil, fault.Usagef("%s is no Parquet file, and others are; expected Parquet files for all splits, or folders", c.cfg.Inputs[i].Path)
	}
	return c.readImageTables(ctx)
}

// readImageTables returns the schema of Parquet files: an image, of the shape that is given or of that of the first
// image, and its class. Columns, and the names of classes that are numbers, are those of the first file of the train
// split, which the others must agree with.
func (c *conversion) readImageTables(ctx context.Context) (*schema, error) {
	cfg := c.cfg
	in := cfg.Inputs[max(0, slices.IndexFunc(cfg.Inputs, func(in Input) bool { return in.Split == Train }))]
	columns, err := table.ParquetColumns(ctx, in.Path)
	if err != nil {
		return nil, err
	}
	image, err := cfg.imageColumn(in, columns)
	if err != nil {
		return nil, err
	}
	class, err := cfg.classColumn(in, columns, image)
	if err != nil {
		return nil, err
	}
	var label *featureSchema
	if class != nil {
		if err := cfg.checkClasses(ctx, in, class); err != nil {
			return nil, err
		}
		label = &featureSchema{name: classFeature, kind: KindCategory, role: RoleLabel, columns: []string{class.Name}, lines: map[string]int{}, byName: class.Text}
		if class.Classes != nil {
			label.categories, label.numbered, label.lines["categories"] = class.Classes, true, 1
			label.missingValues = []string{"-1"} // of test splits without labels, as datasets write them
		}
	}
	return cfg.imageSchema(in.Path, image, label, func() ([]byte, string, error) { return cfg.firstImage(ctx, in.Path, image) })
}

// imageColumn returns the name of the column of images.
func (c *Config) imageColumn(in Input, columns []table.ParquetColumn) (string, error) {
	called, files := []string(nil), []string(nil)
	for _, column := range columns {
		if column.Image && column.Files {
			called = append(called, column.Name)
		}
		if column.Files {
			files = append(files, column.Name)
		}
	}
	if c.ImageColumn != "" {
		i := slices.IndexFunc(columns, func(p table.ParquetColumn) bool { return p.Name == c.ImageColumn })
		if i >= 0 && !columns[i].Files {
			return "", fault.Usagef("%s has no bytes in column %q; expected the bytes of images, or a struct with bytes and path; for paths, write a schema (--schema)", in.Path, c.ImageColumn)
		}
		return c.ImageColumn, nil // what is not there is found when the table is opened
	}
	switch {
	case len(called) == 1:
		return called[0], nil
	case len(files) == 1:
		return files[0], nil
	case len(files) == 0:
		return "", fault.Usagef("%s has no column of images; expected bytes, or a struct with bytes and path, in one of %s", in.Path, names(columns))
	}
	return "", fault.Usagef("%s has bytes in several columns, %s; choose one with --image-column", in.Path, table.List(files))
}

// classColumn returns the column of classes, or nil if a split that needs none has none.
func (c *Config) classColumn(in Input, columns []table.ParquetColumn, image string) (*table.ParquetColumn, error) {
	var named, label *table.ParquetColumn
	several := false
	for i := range columns {
		switch p := &columns[i]; {
		case p.Name == image:
		case c.LabelColumn != "" && p.Name == c.LabelColumn:
			return p, nil
		case p.Classes != nil:
			several, named = named != nil, p
		case p.Name == classFeature:
			label = p
		}
	}
	switch {
	case c.LabelColumn != "" && c.LabelColumn == image:
		return nil, fault.Usagef("column %q is both that of images and that of classes; expected different columns", image)
	case c.LabelColumn != "":
		return &table.ParquetColumn{Name: c.LabelColumn}, nil // refused when the table is opened
	case several:
		return nil, fault.Usagef("%s has several columns of classes, of %s; choose one with --label-column", in.Path, names(columns))
	case named != nil:
		return named, nil
	case label != nil:
		return label, nil
	case needsLabels(in.Split):
		return nil, fault.Usagef("%s does not say which column has the classes; expected one of %s; choose it with --label-column", in.Path, names(columns))
	}
	return nil, nil
}

// checkClasses refuses files whose classes are called otherwise than those of the first one, in.
func (c *Config) checkClasses(ctx context.Context, in Input, class *table.ParquetColumn) error {
	if n := len(class.Classes); n > maxLabels {
		return fault.Usagef("%s has %s; expected at most %d", in.Path, words.Count(int64(n), "class"), maxLabels)
	}
	called := func(p *table.ParquetColumn) string {
		switch {
		case p.Classes != nil:
			return "the classes " + table.List(p.Classes)
		case p.Text:
			return "texts"
		}
		return "numbers without names"
	}
	for _, other := range c.Inputs {
		columns, err := table.ParquetColumns(ctx, other.Path)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(columns, func(p table.ParquetColumn) bool { return p.Name == class.Name })
		if i >= 0 && (!slices.Equal(columns[i].Classes, class.Classes) || columns[i].Text != class.Text) {
			return fault.Usagef("column %q of %s has %s, and that of %s has %s; expected the same", class.Name, in.Path, called(class), other.Path, called(&columns[i]))
		}
	}
	return nil
}

// firstImage returns the first image of a file, and where it is.
func (c *Config) firstImage(ctx context.Context, path, column string) (file []byte, where string, err error) {
	t, err := openTable(ctx, c, path, []table.Column{{Name: column, Files: true, Words: true, Flag: "--image-column"}}, nil)
	if err != nil {
		return nil, "", err
	}
	defer t.Close()
	for cutter := t.NewCutter(); ; {
		text, line, _, err := t.Next()
		if err == nil {
			var fields []table.Field
			if fields, err = cutter.Cut(string(text), line); err == nil {
				return []byte(fields[0].Text), fmt.Sprintf("%s:%d: column %q", path, line, column), nil
			}
		}
		switch bad := asRowError(err); {
		case err == io.EOF:
			return nil, "", fault.Damagedf("%s has no rows", path)
		case bad == nil || !c.SkipBadRows:
			return nil, "", err
		}
	}
}

// names lists the names of columns.
func names(columns []table.ParquetColumn) string {
	var out []string
	for _, c := range columns {
		out = append(out, c.Name)
	}
	return table.List(out)
}
