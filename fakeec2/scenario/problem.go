package scenario

import (
	"fmt"
	"strings"
)

// Problem is one thing in a scenario that cannot be.
type Problem struct {
	Field   string // as it is reached in the file: nodes[0].hopLimit; "" where only the text as a whole is at fault
	Value   string // as given, strings quoted; "" where nothing was given
	Accepts string // what would do; "" where Cause says it
	Cause   error  // a law's refusal
	Line    int    // of the file, from 1; 0 where it is not known
}

func (p Problem) String() string {
	var parts []string
	if p.Field != "" {
		parts = append(parts, p.Field)
	}
	if p.Value != "" {
		parts = append(parts, p.Value)
	}
	if p.Accepts != "" {
		parts = append(parts, "want "+p.Accepts)
	}
	if p.Cause != nil {
		parts = append(parts, p.Cause.Error())
	}
	text := strings.Join(parts, ": ")
	if p.Line > 0 {
		text += fmt.Sprintf(" (line %d)", p.Line)
	}
	return text
}

// Error is everything that was found wrong with a scenario, in the order of the file's reference.
type Error struct{ Problems []Problem }

func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0].String()
	}
	lines := []string{fmt.Sprintf("%d problems", len(e.Problems))}
	for _, problem := range e.Problems {
		lines = append(lines, "  "+problem.String())
	}
	return strings.Join(lines, "\n")
}

// shownValue bounds what a message repeats of the file.
const shownValue = 80

// problems collects.
type problems []Problem

// want notes a value that cannot be.
func (p *problems) want(field string, value any, accepts string) {
	text := fmt.Sprint(value)
	if s, is := value.(string); is {
		text = fmt.Sprintf("%q", s)
	}
	if len(text) > shownValue {
		text = strings.ToValidUTF8(text[:shownValue], "") + "..."
	}
	*p = append(*p, Problem{Field: field, Value: text, Accepts: accepts})
}

// refused notes a law's refusal, if there is one.
func (p *problems) refused(field string, err error) {
	if err != nil {
		*p = append(*p, Problem{Field: field, Cause: err})
	}
}

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return &Error{Problems: p}
}
