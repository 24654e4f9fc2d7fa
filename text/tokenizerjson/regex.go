package tokenizerjson

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/data/chars"
)

// A regular expression of the library is read here, and not by package regexp, because those of models look
// ahead, have possessive repetitions, and mean the classes of the library's release of Unicode. What
// models do not use is refused.

// regex is alternatives, the first that matches counts.
type regex [][]item

// item is a part of an alternative: a set of characters, several one after the other or a group, and how
// often it occurs.
type item struct {
	set        *set
	units      []*set // that occur together
	group      regex
	look       look     // the group is looked for, and not part of the match
	before     [][]*set // the group, of mustPrecede and mustNotPrecede
	min, max   int
	possessive bool   // what was taken is not given back
	after      []item // of a group: those that follow in its alternative
	// choice is the bit of an item that a match may go back to in a memo, and ahead says that the item is of a
	// group that is looked for, of which only counts whether it is there.
	choice uint64
	ahead  bool
}

// look says whether a group must be next, or before, or must not.
type look int

const (
	noLook look = iota
	mustFollow
	mustNotFollow
	mustPrecede
	mustNotPrecede
)

// longestUnits is the most characters of what occurs several times, or is looked for before a match.
const longestUnits = 16

// set is a set of characters: those of any member, or all others.
type set struct {
	ascii   [utf8.RuneSelf]bool
	members []member
	not     bool
}

// member is a range of characters, those of a class or outside of one, or a set.
type member struct {
	lo, hi rune
	class  chars.Class
	not    bool
	set    *set
}

func (m *member) has(r rune) bool {
	switch {
	case m.set != nil:
		return m.set.slow(r)
	case m.class != 0:
		return chars.Is(r, m.class) != m.not
	}
	return m.lo <= r && r <= m.hi
}

func (s *set) slow(r rune) bool {
	for i := range s.members {
		if s.members[i].has(r) {
			return !s.not
		}
	}
	return s.not
}

// wide returns the length of the character that a text begins with, which is not ASCII, if the set has it, and
// 0 otherwise.
func (s *set) wide(text string) int {
	r, size := utf8.DecodeRuneInString(text)
	if s.slow(r) {
		return size
	}
	return 0
}

// one returns the length of the character that a text begins with, if the set has it, and 0 otherwise.
func (s *set) one(text string) int {
	switch {
	case text == "":
		return 0
	case text[0] >= utf8.RuneSelf:
		return s.wide(text)
	case s.ascii[text[0]]:
		return 1
	}
	return 0
}

// all returns the length of the characters that a text begins with, if each is of the set at its place, and
// 0 otherwise.
func all(units []*set, text string) (n int) {
	for _, s := range units {
		size := s.one(text[n:])
		if size == 0 {
			return 0
		}
		n += size
	}
	return n
}

// back returns where the n characters before byte i begin, or -1.
func back(text string, i, n int) int {
	for ; n > 0; n-- {
		if i == 0 {
			return -1
		}
		i -= lastSize(text[:i])
	}
	return i
}

func newSet(not bool, members ...member) *set {
	s := &set{members: members, not: not}
	for c := range s.ascii {
		s.ascii[c] = s.slow(rune(c))
	}
	return s
}

// finder returns what finds the matches.
func (r regex) finder() finder {
	var starts [256]bool
	r.addStarts(&starts)
	return func(s string, at int, m *memo) (int, int) {
		m.begin(s)
		for i := at; i < len(s); {
			if !starts[s[i]] {
				i++ // ASCII
				continue
			}
			if to := m.any(r, i, nil); to > i {
				return i, to
			}
			_, size := utf8.DecodeRuneInString(s[i:])
			i += size
		}
		return -1, -1
	}
}

// addStarts adds the bytes that a match may begin with, and all that are not ASCII.
func (r regex) addStarts(starts *[256]bool) {
	for c := utf8.RuneSelf; c < len(starts); c++ {
		starts[c] = true
	}
	for _, items := range r {
		for _, it := range items {
			first := it.set
			switch {
			case it.look != noLook:
				continue
			case it.group != nil:
				it.group.addStarts(starts)
			case it.units != nil:
				first = it.units[0]
			}
			if first != nil {
				for c, ok := range first.ascii {
					starts[c] = starts[c] || ok
				}
			}
			if it.min > 0 && (it.group == nil || it.group.least() > 0) {
				break
			}
		}
	}
}

// precedes reports whether one of what is looked for ends at byte i.
func (it *item) precedes(text string, i int) bool {
	return slices.ContainsFunc(it.before, func(units []*set) bool {
		at := back(text, i, len(units))
		return at >= 0 && all(units, text[at:]) == i-at
	})
}

// units returns the sets of an alternative that is always as many characters, or nil.
func units(items []item) (out []*set) {
	for _, it := range items {
		if it.set == nil || it.min != it.max || it.min > longestUnits-len(out) {
			return nil
		}
		for range it.min {
			out = append(out, it.set)
		}
	}
	return out
}

func lastSize(s string) int {
	_, size := utf8.DecodeLastRuneInString(s)
	return size
}

// newRegex reads a regular expression.
func newRegex(pattern string) (regex, error) {
	p := &regexParser{rest: pattern}
	r, err := p.alternatives()
	if err == nil && p.rest != "" {
		err = fmt.Errorf("a ) too many")
	}
	if err == nil && r.least() == 0 {
		err = fmt.Errorf("matches of nothing at all")
	}
	if err == nil && r.number(0, false, false) > maxChoices {
		err = fmt.Errorf("more than %d groups and repetitions", maxChoices)
	}
	if err != nil {
		return nil, fmt.Errorf("the regular expression %q has %w; expected what docs/reference/tokenizers.md lists", pattern, err)
	}
	return r, nil
}

// least returns the length of the shortest match.
func (r regex) least() int {
	least := math.MaxInt
	for _, items := range r {
		n := 0
		for _, it := range items {
			switch {
			case it.look != noLook || it.min == 0:
			case it.group != nil:
				n += it.group.least()
			default:
				n += it.min * max(1, len(it.units))
			}
		}
		least = min(least, n)
	}
	return least
}

// number gives each item that a match may go back to a bit, after n others, and returns how many have one then.
// The last ones of what is looked for take no more than they must.
func (r regex) number(n int, ahead, last bool) int {
	for _, items := range r {
		for i := range items {
			it, last := &items[i], last && i == len(items)-1
			it.after = items[i+1:]
			if it.ahead = ahead; last && it.group == nil {
				it.max = it.min
			}
			if it.look == noLook && (it.group != nil || it.min < it.max) {
				it.choice = 1 << n // 0 after maxChoices, which is refused
				n++
			}
			n = it.group.number(n, ahead || it.look != noLook, last || it.look != noLook)
		}
	}
	return n
}

// regexParser reads a regular expression.
type regexParser struct {
	rest string
	fold bool // the case of letters does not matter
	deep int  // groups and sets that are open
}

const (
	maxDeep    = 20   // groups and sets that may be open
	maxChoices = 64   // groups and repetitions: the bits of a memo
	maxTimes   = 1000 // that an item occurs, if there is a most: a memo may take that long for each character
)

// next takes a text if it is next.
func (p *regexParser) next(s string) bool {
	after, ok := strings.CutPrefix(p.rest, s)
	if ok {
		p.rest = after
	}
	return ok
}

func (p *regexParser) char() rune {
	r, size := utf8.DecodeRuneInString(p.rest)
	p.rest = p.rest[size:]
	return r
}

func (p *regexParser) alternatives() (regex, error) {
	if p.deep++; p.deep > maxDeep {
		return nil, fmt.Errorf("more than %d groups in each other", maxDeep)
	}
	defer func() { p.deep-- }()
	var r regex
	for {
		var items []item
		var last byte
		for p.rest != "" && p.rest[0] != '|' && p.rest[0] != ')' {
			first := p.rest[0]
			it, err := p.item()
			if err != nil {
				return nil, err
			}
			if p.fold && (it.max > 1 || slices.Contains(together, strings.ToLower(string([]byte{last, first})))) {
				return nil, fmt.Errorf("letters without case that may be one character")
			}
			items, last = append(items, it), first
		}
		r = append(r, items)
		if !p.next("|") {
			return r, nil
		}
	}
}

// together are the letters that are equal to a single character without case: ß, ﬀ, ﬁ, ﬂ and ﬆ.
var together = []string{"ss", "ff", "fi", "fl", "st"}

// item reads a set or a group, and how often it occurs.
func (p *regexParser) item() (it item, err error) {
	it.min, it.max = 1, 1
	fold := p.fold
	switch {
	case p.next(`\b`):
		it.group = boundary()
		return it, nil
	case p.next("(?="):
		it.look = mustFollow
	case p.next("(?!"):
		it.look = mustNotFollow
	case p.next("(?<="):
		it.look = mustPrecede
	case p.next("(?<!"):
		it.look = mustNotPrecede
	case p.next("(?i:"):
		p.fold = true
	case p.next("(?:"):
	case p.next("(?"):
		return it, fmt.Errorf("%q", "(?"+p.rest[:min(1, len(p.rest))])
	case p.next("("):
	default:
		if it.set, err = p.set(); err == nil {
			err = p.often(&it)
		}
		return it, err
	}
	if it.group, err = p.alternatives(); err != nil {
		return it, err
	}
	p.fold = fold
	if !p.next(")") {
		return it, fmt.Errorf("a ( too many")
	}
	if it.look == mustPrecede || it.look == mustNotPrecede {
		for _, items := range it.group {
			it.before = append(it.before, units(items))
		}
		if slices.ContainsFunc(it.before, func(u []*set) bool { return u == nil }) {
			return it, fmt.Errorf("a look behind for what may be of several lengths, of none or of more than %d characters", longestUnits)
		}
		it.group = nil
	}
	if err = p.often(&it); err != nil || it.max == 1 && !it.possessive && (it.min > 0 || it.look == noLook) {
		return it, err
	}
	if it.look == noLook && len(it.group) == 1 {
		it.units, it.group = units(it.group[0]), nil
	}
	if it.units == nil {
		err = fmt.Errorf("a group that is repeated and may be of several lengths or alternatives")
	}
	return it, err
}

// boundary is what \b stands for: a character of words before, or after, and not both.
func boundary() regex {
	word := newSet(false, member{class: chars.WordPoint})
	is := func(l look) item {
		if l == mustPrecede || l == mustNotPrecede {
			return item{look: l, before: [][]*set{{word}}, min: 1, max: 1}
		}
		return item{look: l, group: regex{{{set: word, min: 1, max: 1}}}, min: 1, max: 1}
	}
	return regex{{is(mustPrecede), is(mustNotFollow)}, {is(mustNotPrecede), is(mustFollow)}}
}

// often reads how often an item occurs.
func (p *regexParser) often(it *item) error {
	switch {
	case p.next("?"):
		it.min = 0
	case p.next("*"):
		it.min, it.max = 0, math.MaxInt
	case p.next("+"):
		it.max = math.MaxInt
	case p.next("{"):
		inside, after, _ := strings.Cut(p.rest, "}")
		low, high, two := strings.Cut(inside, ",")
		least, err := strconv.ParseUint(low, 10, 16)
		most := least
		if err == nil && two {
			if most = math.MaxInt; high != "" {
				most, err = strconv.ParseUint(high, 10, 16)
			}
		}
		if err != nil || most < least || most == 0 {
			return fmt.Errorf("%q", "{"+inside)
		}
		if least > maxTimes || high != "" && most > maxTimes {
			return fmt.Errorf("a repetition of more than %d times", maxTimes)
		}
		it.min, it.max, p.rest = int(least), int(most), after
		if p.rest != "" && strings.ContainsRune("?*+{", rune(p.rest[0])) {
			return fmt.Errorf("%q", "}"+p.rest[:1])
		}
		return nil
	default:
		return nil
	}
	it.possessive = p.next("+")
	if p.rest != "" && strings.ContainsRune("?*+{", rune(p.rest[0])) {
		return fmt.Errorf("a repetition of a repetition")
	}
	return nil
}

// set reads a set, or a character that stands for itself.
func (p *regexParser) set() (*set, error) {
	if p.next("[") {
		return p.brackets()
	}
	if p.next(".") {
		return newSet(true, member{lo: '\n', hi: '\n'}), nil
	}
	if strings.ContainsRune("^$?*+{}]", rune(p.rest[0])) {
		return nil, fmt.Errorf("%q", p.rest[:1])
	}
	m, err := p.member()
	if err != nil {
		return nil, err
	}
	all, err := p.folded(m)
	return newSet(false, all...), err
}

// folded returns what a member stands for: in both cases, where case does not matter.
func (p *regexParser) folded(m member) ([]member, error) {
	if !p.fold {
		return []member{m}, nil
	}
	if m.class != 0 || m.set != nil || m.lo != m.hi || m.lo >= utf8.RuneSelf {
		return nil, fmt.Errorf("more than ASCII letters without case")
	}
	r := m.lo | 0x20
	if r < 'a' || 'z' < r {
		return []member{m}, nil
	}
	all := []member{{lo: r, hi: r}, {lo: r &^ 0x20, hi: r &^ 0x20}}
	if other := map[rune]rune{'s': 'ſ', 'k': '\u212a'}[r]; other != 0 {
		all = append(all, member{lo: other, hi: other})
	}
	return all, nil
}

// brackets reads a set after its bracket.
func (p *regexParser) brackets() (*set, error) {
	if p.deep++; p.deep > maxDeep {
		return nil, fmt.Errorf("more than %d sets in each other", maxDeep)
	}
	defer func() { p.deep-- }()
	not := p.next("^")
	if not && p.fold {
		return nil, fmt.Errorf("a set that is excluded without case")
	}
	var all []member
	for !p.next("]") {
		switch {
		case p.rest == "" || strings.HasPrefix(p.rest, "&&") || strings.HasPrefix(p.rest, "[:") || p.rest[0] == '-':
			return nil, fmt.Errorf("a set that is not closed, or one with &&, [:, - or ] at a place where they are not known")
		case p.next("["):
			inner, err := p.brackets()
			if err != nil {
				return nil, err
			}
			all = append(all, member{set: inner})
			continue
		}
		m, err := p.member()
		if err != nil {
			return nil, err
		}
		if m.class == chars.WordPoint {
			m = member{set: newSet(!m.not, append(latinNumbers(), member{class: chars.WordPoint, not: true})...)}
		}
		if strings.HasPrefix(p.rest, "-") && !strings.HasPrefix(p.rest, "-]") {
			p.rest = p.rest[1:]
			end, err := p.member()
			if err != nil || m.class != 0 || m.set != nil || end.class != 0 || end.lo < m.lo {
				return nil, fmt.Errorf("a range that is not one of characters in order")
			}
			m.hi = end.lo
		}
		some, err := p.folded(m)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		if p.next("-]") {
			return newSet(not, append(all, member{lo: '-', hi: '-'})...), nil
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("a set of nothing")
	}
	return newSet(not, all...), nil
}

// latinNumbers are ², ³, ¹, ¼, ½ and ¾, which the library takes for characters of words, but not within
// brackets.
func latinNumbers() (out []member) {
	for _, r := range "²³¹¼½¾" {
		out = append(out, member{lo: r, hi: r})
	}
	return out
}

// classNames are the classes by their names in \p{}.
var classNames = map[string]chars.Class{"L": chars.Letter, "Lu": chars.Upper, "Ll": chars.LowerCase, "Lt": chars.Title,
	"Lm": chars.Modifier, "Lo": chars.OtherLetter, "M": chars.AnyMark, "N": chars.Number, "P": chars.AnyPunct, "S": chars.Symbol}

// member reads a character or a class.
func (p *regexParser) member() (member, error) {
	r := p.char()
	if r != '\\' {
		return member{lo: r, hi: r}, nil
	}
	r = p.char()
	switch {
	case r == 's' || r == 'S':
		return member{class: chars.Space, not: r == 'S'}, nil
	case r == 'd' || r == 'D':
		return member{class: chars.Digit, not: r == 'D'}, nil
	case r == 'w' || r == 'W':
		return member{class: chars.WordPoint, not: r == 'W'}, nil
	case r == 'p' || r == 'P':
		name, after, ok := strings.Cut(p.rest, "}")
		class := classNames[strings.TrimPrefix(name, "{")]
		if !ok || class == 0 || name[0] != '{' {
			return member{}, fmt.Errorf("%q", `\`+string(r)+name)
		}
		p.rest = after
		return member{class: class, not: r == 'P'}, nil
	case '!' <= r && r <= '/' || ':' <= r && r <= '@' || '[' <= r && r <= '`' || '{' <= r && r <= '~':
		return member{lo: r, hi: r}, nil
	}
	if c := map[rune]rune{'r': '\r', 'n': '\n', 't': '\t'}[r]; c != 0 {
		return member{lo: c, hi: c}, nil
	}
	return member{}, fmt.Errorf("%q", `\`+string(r))
}
