package graphs

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// DotBegins is how what Dot writes begins.
const DotBegins = "digraph gorbit {"

// Dot writes a drawing of the export in the DOT language of Graphviz. It shows the variables in
// boxes for their modules, and each function of the contract in a box with the functions that it
// calls. Edges show the number of calls.
func (e *Export) Dot(w io.Writer) error {
	d := &dotWriter{w: bufio.NewWriter(w)}
	d.open("digraph gorbit")
	d.line("graph [rankdir=LR, compound=true, fontname=Helvetica, fontsize=12, label=%s]", quote(e.Path))
	d.line("node [shape=box, style=filled, fillcolor=white, fontname=Helvetica, fontsize=10]")
	d.line("edge [fontname=Helvetica, fontsize=9]")

	root := &module{}
	for _, v := range e.Contract.Variables {
		root.add(strings.Split(v.Name, "/"), v)
	}
	for _, s := range e.Contract.States {
		root.add(strings.Split(s.Name, "/"), Variable{Name: s.Name, Shape: s.Shape, DType: s.DType})
	}
	tail := d.module(root, "cluster")
	for _, name := range e.Contract.functions() {
		d.function(e, e.Functions[name], tail)
	}
	d.close()
	return d.w.Flush()
}

// module is a node of the tree of variable names.
type module struct {
	name      string
	children  []*module
	byName    map[string]*module
	variables []Variable
}

// add adds a variable at a path.
func (m *module) add(path []string, v Variable) {
	for _, name := range path[:len(path)-1] {
		c, ok := m.byName[name]
		if !ok {
			c = &module{name: name}
			if m.byName == nil {
				m.byName = make(map[string]*module)
			}
			m.byName[name] = c
			m.children = append(m.children, c)
		}
		m = c
	}
	m.variables = append(m.variables, v)
}

// dotWriter writes lines with the indentation of their block. Write errors are kept in w.
type dotWriter struct {
	w     *bufio.Writer
	depth int
}

func (d *dotWriter) line(format string, args ...any) {
	fmt.Fprintf(d.w, "%s%s\n", strings.Repeat("  ", d.depth), fmt.Sprintf(format, args...))
}

func (d *dotWriter) open(header string) {
	d.line("%s {", header)
	d.depth++
}

func (d *dotWriter) close() {
	d.depth--
	d.line("}")
}

// module draws a module as a box around its submodules, or as a node if it has none. It returns the
// name of a node inside, where edges can start.
func (d *dotWriter) module(m *module, path string) string {
	var text []string
	if m.name != "" {
		text = append(text, m.name)
	}
	for _, v := range m.variables {
		text = append(text, v.Name[strings.LastIndexByte(v.Name, '/')+1:]+" "+shapeText(v.Shape))
	}
	inside := path + "/."
	if len(m.children) == 0 || len(m.variables) > 0 {
		d.line("%s [label=%s]", quote(inside), quote(strings.Join(text, "\n")))
	}
	slices.SortStableFunc(m.children, func(a, b *module) int { return cmp.Compare(number(a.name), number(b.name)) })
	last := ""
	for i, c := range m.children {
		p := path + "/" + c.name
		if len(c.children) > 0 {
			d.open("subgraph " + quote(p))
			d.line("label=%s", quote(c.name))
		}
		node := d.module(c, p)
		if len(c.children) > 0 {
			d.close()
		}
		if i == 0 && len(m.variables) == 0 {
			inside = node
		}
		// Place numbered modules side by side.
		if number(c.name) > 0 && last != "" {
			d.line("%s -> %s [style=invis]", quote(last), quote(node))
		}
		last = node
	}
	return inside
}

// number returns the value of a name that is a number, or -1.
func number(name string) int {
	n, err := strconv.Atoi(name)
	if err != nil {
		return -1
	}
	return n
}

// function draws f with the functions that it calls, and an edge to f from the variables. The edge
// starts at the node tail.
func (d *dotWriter) function(e *Export, f *Function, tail string) {
	id := func(graphName string) string { return quote(f.Name + ":" + graphName) }
	reached := e.reach(f.Name)
	d.open("subgraph " + quote("cluster function "+f.Name))
	d.line("label=%s", quote(f.Name))
	d.line("style=filled")
	d.line("fillcolor=aliceblue")
	for _, name := range sortedKeys(reached) {
		def := e.library.functions[name]
		d.line("%s [label=%s]", id(name), quote(shortName(name)+"\n"+count(len(def.GetNodeDef()), "node")))
	}
	for _, name := range sortedKeys(reached) {
		calls := make(map[string]int)
		for _, node := range e.library.functions[name].GetNodeDef() {
			for _, callee := range appendCallees(nil, node) {
				if reached[callee] {
					calls[callee]++
				}
			}
		}
		for _, callee := range sortedKeys(calls) {
			d.line("%s -> %s [label=%s]", id(name), id(callee), quote(fmt.Sprintf("× %d", calls[callee])))
		}
	}
	d.close()
	used := 0
	for _, c := range f.Captures {
		if e.Contract.reads(c) {
			used++
		}
	}
	if used > 0 {
		d.line("%s -> %s [label=%s%s]", quote(tail), id(f.GraphName), quote(count(used, "variable")), cluster(tail))
	}
}

// cluster returns the attribute that makes an edge start at the outermost box around its tail.
func cluster(tail string) string {
	if parts := strings.Split(tail, "/"); len(parts) > 3 {
		return ", ltail=" + quote(strings.Join(parts[:2], "/"))
	}
	return ""
}

// generated matches the prefix and suffix that TensorFlow adds to a function's name in the library.
var generated = regexp.MustCompile(`^__(inference|forward)_+|(_\d+)+$`)

func shortName(graphName string) string {
	if s := generated.ReplaceAllString(graphName, ""); s != "" {
		return s
	}
	return graphName
}

// quote returns a DOT string. It escapes quotes and backslashes, writes line breaks as \n, and
// removes other control characters.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r >= ' ':
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
