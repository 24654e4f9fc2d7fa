package graphs

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
)

// nodeName matches TensorFlow's node names: variables are nodes of a composed graph.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*$`)

// argName matches the names of functions, and of their arguments.
var argName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// maxName limits the length of a variable's name.
const maxName = 1 << 10

// maxElements limits a variable's elements, so that its size in bytes does not overflow.
const maxElements = 1 << 48

// maxAxes limits the axes of a feature: TensorFlow's tensors have no more.
const maxAxes = 8

// reserved are the arguments of the functions that are neither features nor hyperparameters.
var reserved = []string{"seed", "learning_rate", "weight_decay", "clip_norm", "variable", "gradient", "gradient_scale", "iteration"}

// check checks the contract itself, without the functions.
func (c *Contract) check() error {
	switch {
	case c.Format != "gorbit":
		return fmt.Errorf("format is %q; expected \"gorbit\"", c.Format)
	case c.Version < oldestVersion || c.Version > ContractVersion:
		return fmt.Errorf("version is %d; expected %d or %d; export the graph again with python -m gorbit_export", c.Version, oldestVersion, ContractVersion)
	case c.Precision != Float32 && c.Precision != BF16 && c.Precision != FP16:
		return fmt.Errorf("precision is %q; expected %s, %s or %s", c.Precision, Float32, BF16, FP16)
	case c.Precision == FP16 && !slices.ContainsFunc(c.Hyperparameters, func(h Hyperparameter) bool { return h.Name == LossScale }):
		return fmt.Errorf("precision is %s; expected a hyperparameter %s", FP16, LossScale)
	case c.Input != InputPacked && c.Input != InputDense:
		return fmt.Errorf("input is %q; expected %s or %s", c.Input, InputPacked, InputDense)
	case c.Loss != "" && c.Loss != LossEach && c.Loss != LossAcross:
		return fmt.Errorf("loss is %q; expected %s or %s", c.Loss, LossEach, LossAcross)
	case len(c.Variables) == 0:
		return errors.New("no variables")
	case len(c.Features) == 0:
		return errors.New("no features")
	case c.Optimizer.Iterations == "":
		return errors.New("optimizer.iterations is empty")
	case c.State == "":
		return errors.New("state is empty")
	}
	for _, check := range []func() error{c.checkFeatures, c.checkAxes, c.checkTargets, c.checkMasking, c.checkHyperparameters, c.checkUpdates, c.checkModel, c.checkPhases, c.checkMetrics, c.checkOutputs, c.checkGeneration} {
		if err := check(); err != nil {
			return err
		}
	}
	flops := c.Model.FLOPs
	if min(flops.PerToken, flops.PerTokenPair, flops.PerTargetToken, flops.PerTargetPair, flops.PerExample) < 0 {
		return errors.New("model.flops has a negative count")
	}
	return nil
}

// integers are the limits of the integer dtypes: the least value, and the last.
var integers = map[string][2]int64{
	"uint8": {0, math.MaxUint8},
	"int32": {math.MinInt32, math.MaxInt32},
	"int64": {math.MinInt64, math.MaxInt64},
}

// checkFeatures checks each feature on its own.
func (c *Contract) checkFeatures() error {
	seen := make(map[string]bool)
	for _, f := range c.Features {
		if f.Name == "" || seen[f.Name] {
			return fmt.Errorf("feature %q has no name or is declared twice", f.Name)
		}
		seen[f.Name] = true
		if len(f.Name) > maxName || !nodeName.MatchString(f.Name) || slices.Contains(reserved, f.Name) {
			return fmt.Errorf("feature name %.64q is not valid; expected letters, digits and _, and none of %v", f.Name, reserved)
		}
		switch f.DType {
		case "uint8", "int32", "int64", "float32", "bool":
		default:
			return fmt.Errorf("feature %s has dtype %s; expected uint8, int32, int64, float32 or bool", f.Name, f.DType)
		}
		switch f.Role {
		case RoleInput, RoleLabel, RoleWeight, RoleID:
		default:
			return fmt.Errorf("feature %s has role %q; expected %s, %s, %s or %s", f.Name, f.Role, RoleInput, RoleLabel, RoleWeight, RoleID)
		}
		if err := f.checkShape(); err != nil {
			return err
		}
		if err := f.checkBounds(); err != nil {
			return err
		}
		if err := c.checkMake(f); err != nil {
			return err
		}
	}
	return nil
}

func (f Feature) checkShape() error {
	if len(f.Axes) > maxAxes || slices.Contains(f.Axes, "") {
		return fmt.Errorf("feature %s has axes %q; expected at most %d, each with a name", f.Name, f.Axes, maxAxes)
	}
	if len(f.Shape) != len(f.Axes) {
		return fmt.Errorf("feature %s has a shape of %d sizes; expected %d, one for each of its axes %v", f.Name, len(f.Shape), len(f.Axes), f.Axes)
	}
	elements := int64(1)
	for _, d := range f.Shape {
		if d == open {
			continue
		}
		if d < 1 || d > maxElements/elements {
			return fmt.Errorf("feature %s has shape %v; expected sizes of 1 or more, or null, and at most %d elements", f.Name, shapeText(f.Shape), int64(maxElements))
		}
		elements *= d
	}
	return nil
}

func (f Feature) checkBounds() error {
	limits, integer := integers[f.DType]
	if !integer && (f.Minimum != nil || f.Below != nil) {
		return fmt.Errorf("feature %s has bounds and dtype %s; expected bounds of integers only", f.Name, f.DType)
	}
	if f.Minimum != nil && (*f.Minimum < limits[0] || *f.Minimum > limits[1]) {
		return fmt.Errorf("feature %s has minimum %d; expected a number of dtype %s", f.Name, *f.Minimum, f.DType)
	}
	// The first value that is too large may be one more than the last of the dtype.
	if f.Below != nil && (*f.Below-1 < limits[0] || *f.Below-1 > limits[1] || f.Minimum != nil && *f.Below <= *f.Minimum) {
		return fmt.Errorf("feature %s has below %d; expected a number of dtype %s that is more than the minimum", f.Name, *f.Below, f.DType)
	}
	whole := f.Pad == math.Trunc(f.Pad)
	switch {
	case integer && (!whole || f.Pad < float64(limits[0]) || f.Pad > float64(limits[1])),
		f.DType == "bool" && f.Pad != 0 && f.Pad != 1,
		f.DType == "float32" && math.IsInf(float64(float32(f.Pad)), 0):
		return fmt.Errorf("feature %s has pad %v; expected a number of dtype %s", f.Name, f.Pad, f.DType)
	}
	return nil
}

// made is what a feature that is made must be: its input, dtypes and first axes.
type made struct {
	input  string // "" means any
	dtypes []string
	axes   []string
	more   bool // it may have more axes than these
}

// targetAxes are the axes of a feature with a value per token of the targets.
var targetAxes = []string{"rows", "target_length"}

var makes = map[string]made{
	"sequence_ids":        {InputPacked, []string{"int32"}, []string{"rows", "length"}, false},
	"position_ids":        {InputPacked, []string{"int32"}, []string{"rows", "length"}, false},
	MakeTextPositions:     {InputPacked, []string{"int32"}, []string{"rows", "length"}, false},
	"example_ids":         {InputPacked, []string{"int32"}, []string{"rows", "length"}, false},
	"target_sequence_ids": {InputPacked, []string{"int32"}, targetAxes, false},
	"target_position_ids": {InputPacked, []string{"int32"}, targetAxes, false},
	"target_example_ids":  {InputPacked, []string{"int32"}, targetAxes, false},
	"starts":              {InputPacked, []string{"int32"}, []string{axisExamples}, false},
	"offset":              {InputPacked, []string{"int32"}, []string{axisExamples}, false},
	"parts":               {InputPacked, []string{"int32"}, []string{axisExamples}, true},
	"masked_positions":    {InputPacked, []string{"int32"}, []string{"predictions"}, false},
	"masked_labels":       {InputPacked, []string{"int32"}, []string{"predictions"}, false},
	"masked_weights":      {InputPacked, []string{"float32"}, []string{"predictions"}, false},
	"multi_hot":           {"", []string{"float32"}, []string{axisExamples}, true},
	"mask":                {InputDense, []string{"uint8", "int32", "int64", "float32", "bool"}, []string{axisExamples}, true},
	"length":              {InputDense, []string{"int32", "int64", "float32"}, []string{axisExamples}, false},
}

// checkMake checks that a feature can be made as it is declared.
func (c *Contract) checkMake(f Feature) error {
	if f.Make == "" {
		return nil
	}
	m, ok := makes[f.Make]
	if !ok {
		return fmt.Errorf("feature %s has make %q; expected none or one of %v", f.Name, f.Make, sortedKeys(makes))
	}
	if m.input != "" && m.input != c.Input {
		return fmt.Errorf("feature %s has make %q and input is %q; expected input %q", f.Name, f.Make, c.Input, m.input)
	}
	if !slices.Contains(m.dtypes, f.DType) || len(f.Axes) < len(m.axes) || !slices.Equal(f.Axes[:len(m.axes)], m.axes) || (len(f.Axes) > len(m.axes)) != m.more {
		more := ""
		if m.more {
			more = " and another axis"
		}
		return fmt.Errorf("feature %s has make %q, dtype %s and axes %v; expected dtype %v and axes %v%s", f.Name, f.Make, f.DType, f.Axes, m.dtypes, m.axes, more)
	}
	if types := c.Feature("type_ids"); f.Make == MakeTextPositions && (f.Name != "position_ids" || types == nil || types.Make != "" || types.DType != "int32" || types.Classes() < 2) {
		return fmt.Errorf("feature %s has make %q; expected it of position_ids, and a feature type_ids of dtype int32 with below 2 or more, the number of texts of an example", f.Name, f.Make)
	}
	return nil
}

// checkAxes checks the axes of all features together.
func (c *Contract) checkAxes() error {
	type axis struct {
		size    int64
		feature string
	}
	seen := make(map[string]axis)
	padded := "" // the open axis of dense features
	for _, f := range c.Features {
		for k, name := range f.Axes {
			size := f.Shape[k]
			if one, ok := seen[name]; ok && one.size != size {
				return fmt.Errorf("axis %s is %s in feature %s and %s in feature %s; expected one size", name, sizeText(one.size), one.feature, sizeText(size), f.Name)
			}
			seen[name] = axis{size, f.Name}
		}
		if c.Version == oldestVersion {
			continue
		}
		first := ""
		if len(f.Axes) > 0 && f.Shape[0] == open {
			first = f.Axes[0]
		}
		switch {
		case c.Input == InputDense && first != axisExamples:
			return fmt.Errorf("feature %s has axes %v of shape %s; expected the open axis examples first", f.Name, f.Axes, shapeText(f.Shape))
		case first != axisExamples && first != "rows" && first != "predictions":
			return fmt.Errorf("feature %s has axes %v of shape %s; expected an open axis examples, rows or predictions first", f.Name, f.Axes, shapeText(f.Shape))
		case first == "rows" && (len(f.Axes) < 2 || f.Axes[1] != "length" && f.Axes[1] != targetAxes[1] || f.Shape[1] != open):
			return fmt.Errorf("feature %s has axes %v of shape %s; expected the open axes rows and length, or rows and target_length, first", f.Name, f.Axes, shapeText(f.Shape))
		}
		for k, name := range f.Axes {
			if c.Input != InputDense || f.Shape[k] != open || name == axisExamples {
				continue
			}
			if slices.Contains(f.Axes[:k], name) {
				return fmt.Errorf("feature %s has the open axis %s twice; expected at most one open axis in addition to examples", f.Name, name)
			}
			if padded != "" && padded != name {
				return fmt.Errorf("axes %s and %s are open; expected at most one open axis in addition to examples", padded, name)
			}
			padded = name
		}
	}
	return nil
}

// checkTargets checks that the targets of sources are there, if a feature or the task is of them, and
// that they have tokens on both sides.
func (c *Contract) checkTargets() error {
	of := ""
	if i := slices.IndexFunc(c.Features, Feature.OfTarget); i >= 0 {
		of = fmt.Sprintf("feature %s has axes %v", c.Features[i].Name, c.Features[i].Axes)
	}
	if c.Task == seq2seqTask {
		of = "task is " + seq2seqTask
	}
	if of == "" {
		return nil
	}
	if c.Input != InputPacked {
		return fmt.Errorf("%s and input is %q; expected input %q", of, c.Input, InputPacked)
	}
	for _, side := range []struct {
		name string
		axes []string
	}{{"input_ids", []string{"rows", "length"}}, {TargetIDs, targetAxes}} {
		if f := c.Feature(side.name); f == nil || f.DType != "int32" || f.Make != "" || f.Role != RoleInput || !slices.Equal(f.Axes, side.axes) {
			return fmt.Errorf("%s; expected a feature %s of dtype int32, role input, axes %v and no make, the tokens of that side", of, side.name, side.axes)
		}
	}
	if c.Masking != nil {
		return fmt.Errorf("%s and there is masking; expected none, because targets are not masked", of)
	}
	return nil
}

func (c *Contract) checkMasking() error {
	m := c.Masking
	for _, f := range c.Features {
		switch f.Make {
		case "masked_positions", "masked_labels", "masked_weights":
			if m == nil {
				return fmt.Errorf("feature %s has make %q; expected masking", f.Name, f.Make)
			}
		}
	}
	if m == nil {
		return nil
	}
	if c.Input != InputPacked {
		return fmt.Errorf("input is %q with masking; expected %q", c.Input, InputPacked)
	}
	for _, token := range append([]int32{m.MaskToken}, m.Special...) {
		if token < 0 || token >= m.VocabSize {
			return fmt.Errorf("masking has the token %d; expected a token of 0 to %d, as vocab_size says", token, m.VocabSize-1)
		}
	}
	return nil
}

func (c *Contract) checkHyperparameters() error {
	seen := make(map[string]bool)
	for _, f := range c.Features {
		seen[f.Name] = true
	}
	for _, name := range reserved {
		seen[name] = true
	}
	for _, h := range c.AllHyperparameters() {
		if h.Name == "" || seen[h.Name] {
			return fmt.Errorf("hyperparameter %q has no name or is declared twice", h.Name)
		}
		seen[h.Name] = true
		if err := h.Check(h.Default); err != nil {
			return fmt.Errorf("hyperparameter %w", err)
		}
	}
	return nil
}

// checkUpdates checks the updates and their slots.
func (c *Contract) checkUpdates() error {
	arguments := slices.Clone(reserved)
	for _, h := range c.Optimizer.Hyperparameters {
		arguments = append(arguments, h.Name)
	}
	for _, name := range sortedKeys(c.Updates) {
		if len(name) > maxName || !argName.MatchString(name) || name != "update" && slices.Contains(functionNames, name) {
			return fmt.Errorf("update %.64q has no valid name; expected letters, digits and _, and none of the other functions %v", name, functionNames)
		}
		slots := make(map[string]bool)
		for _, s := range c.Updates[name].Slots {
			if s.Name == "" || slots[s.Name] {
				return fmt.Errorf("slot %q has no name or is declared twice", s.Name)
			}
			slots[s.Name] = true
			if len(s.Name) > maxName || !argName.MatchString(s.Name) || slices.Contains(arguments, s.Name) {
				return fmt.Errorf("slot name %.64q of %s is not valid; expected letters, digits and _, and no other argument of %[2]s", s.Name, name)
			}
			if math.IsInf(float64(float32(s.Initial)), 0) {
				return fmt.Errorf("slot %s of %s is %v at first; expected a float32", s.Name, name, s.Initial)
			}
		}
	}
	return nil
}

// checkModel checks the variables, the states, and what is merged.
func (c *Contract) checkModel() error {
	names := make(map[string]bool)
	check := func(what, name string, shape []int64) error {
		if len(name) > maxName || !nodeName.MatchString(name) || strings.HasPrefix(name, StatePrefix) {
			return fmt.Errorf("%s name %.64q is not valid in TensorFlow", what, name)
		}
		if names[name] {
			return fmt.Errorf("%s %s is declared twice", what, name)
		}
		names[name] = true
		return checkShape(what+" "+name, shape)
	}
	for _, v := range c.Variables {
		if err := check("variable", v.Name, v.Shape); err != nil {
			return err
		}
		if err := c.checkVariable(v); err != nil {
			return err
		}
	}
	for _, s := range c.States {
		if err := check("state", s.Name, s.Shape); err != nil {
			return err
		}
		switch s.DType {
		case "float32":
		case "int32", "int64", "bool":
			if s.Updated {
				return fmt.Errorf("state %s has dtype %s and is updated; expected float32", s.Name, s.DType)
			}
		default:
			return fmt.Errorf("state %s has dtype %s; expected float32, int32, int64 or bool", s.Name, s.DType)
		}
	}
	merged := make(map[string]bool)
	for _, name := range c.Merge {
		if _, ok := c.shape(name); !ok || merged[name] {
			return fmt.Errorf("merge names %q; expected a float32 variable or state, each once", name)
		}
		merged[name] = true
	}
	return nil
}

// checkShape checks the shape of a variable.
func checkShape(what string, shape []int64) error {
	elements := int64(1)
	for _, d := range shape {
		if d < 1 || d > maxElements/elements {
			return fmt.Errorf("%s has shape %v; expected dimensions of 1 or more and at most %d elements", what, shape, int64(maxElements))
		}
		elements *= d
	}
	return nil
}

func (c *Contract) checkVariable(v Variable) error {
	if v.DType != "float32" {
		return fmt.Errorf("variable %s has dtype %s; expected float32", v.Name, v.DType)
	}
	if v.Rows != "" {
		if f := c.Feature(v.Rows); f == nil || f.DType != "int32" || len(v.Shape) == 0 {
			return fmt.Errorf("variable %s of shape %v has rows %q; expected an int32 feature", v.Name, v.Shape, v.Rows)
		}
	}
	for _, factor := range []struct {
		name  string
		value float64
	}{{"weight_decay", v.Decay}, {"learning_rate", v.LearningRate}} {
		if factor.value < 0 || factor.value > math.MaxFloat32 {
			return fmt.Errorf("variable %s has %s %v; expected a factor of 0 or more", v.Name, factor.name, factor.value)
		}
	}
	update, ok := c.Updates[v.Update]
	if !ok {
		return fmt.Errorf("variable %s has update %q; expected one of %v", v.Name, v.Update, sortedKeys(c.Updates))
	}
	if i := v.Initializer; i != nil {
		if err := i.check(); err != nil {
			return fmt.Errorf("variable %s has %w", v.Name, err)
		}
	}
	for _, slot := range sortedKeys(v.SlotShapes) {
		if update.Elementwise {
			return fmt.Errorf("variable %s has the shape of a slot %q; expected the variable's own of an elementwise %s", v.Name, slot, v.Update)
		}
		if !slices.ContainsFunc(update.Slots, func(s UpdateSlot) bool { return s.Name == slot }) {
			return fmt.Errorf("variable %s has the shape of a slot %q; expected a slot of %s", v.Name, slot, v.Update)
		}
		if err := checkShape(fmt.Sprintf("slot %s of variable %s", slot, v.Name), v.SlotShapes[slot]); err != nil {
			return err
		}
	}
	return nil
}

// check returns an error if values cannot be drawn as the initializer says.
func (i Initializer) check() error {
	switch i.Kind {
	case Unknown:
		return nil
	case Normal, TruncatedNormal, Uniform:
		if i.Scale > 0 && i.Scale <= math.MaxFloat32 && math.Abs(i.Mean) <= math.MaxFloat32 {
			return nil
		}
	}
	return fmt.Errorf("the initializer %s of mean %v and scale %v; expected %s, %s, %s or %s, and a scale above 0", i.Kind, i.Mean, i.Scale, Normal, TruncatedNormal, Uniform, Unknown)
}

func (c *Contract) checkMetrics() error {
	if b := c.Best; b.Metric == "" || b.Better != Higher && b.Better != Lower {
		return fmt.Errorf("best is the %q value of metric %q; expected a metric, %s or %s", b.Better, b.Metric, Higher, Lower)
	}
	seen := make(map[string]bool)
	for _, m := range c.Metrics {
		if m.Name == "" || seen[m.Name] || m.Name == "loss" {
			return fmt.Errorf("metric %q has no name, is declared twice or is the loss, which every export has", m.Name)
		}
		seen[m.Name] = true
		if m.Better != Higher && m.Better != Lower && m.Better != "" {
			return fmt.Errorf("metric %s gets better %q; expected %s, %s or \"\"", m.Name, m.Better, Higher, Lower)
		}
		if m.Name == c.Best.Metric && m.Better != c.Best.Better {
			return fmt.Errorf("metric %s gets better %q and best has %q; expected the same", m.Name, m.Better, c.Best.Better)
		}
	}
	if c.Best.Metric == "loss" && c.Best.Better != Lower {
		return fmt.Errorf("best is the %s loss; expected %s", c.Best.Better, Lower)
	}
	if len(c.Results) > 0 && len(c.Metrics) == 0 {
		return errors.New("results has sums and there are no metrics; expected the metrics that results gives")
	}
	sums := make(map[string]bool)
	for _, name := range c.Results {
		if name == "" || sums[name] {
			return fmt.Errorf("the sum %q of results has no name or is declared twice", name)
		}
		sums[name] = true
	}
	return nil
}

// outputKinds are the kinds of outputs.
var outputKinds = []string{"probabilities", "logits", "value", "values", "tokens", "spans"}

func (c *Contract) checkOutputs() error {
	seen := make(map[string]bool)
	for _, o := range c.Outputs {
		if o.Name == "" || seen[o.Name] {
			return fmt.Errorf("output %q has no name or is declared twice", o.Name)
		}
		seen[o.Name] = true
		switch o.DType {
		case "uint8", "int32", "int64", "float32", "bool":
		default:
			return fmt.Errorf("output %s has dtype %s; expected uint8, int32, int64, float32 or bool", o.Name, o.DType)
		}
		if len(o.Axes) == 0 || !slices.Contains([]string{axisExamples, "rows", "predictions"}, o.Axes[0]) {
			return fmt.Errorf("output %s has axes %v; expected examples, rows or predictions first", o.Name, o.Axes)
		}
		if !slices.Contains(outputKinds, o.Kind) {
			return fmt.Errorf("output %s has kind %q; expected one of %v", o.Name, o.Kind, outputKinds)
		}
		if f := c.Feature(o.Of); o.Of != "" && (f == nil || f.Role != RoleLabel) && c.Version != oldestVersion {
			return fmt.Errorf("output %s is of %q; expected a feature that is a label", o.Name, o.Of)
		}
	}
	return nil
}

func sizeText(size int64) string {
	if size == open {
		return "open"
	}
	return fmt.Sprint(size)
}
