package scenario

import (
	"errors"
	"fmt"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// linesOf gives the line of each field of a text, by the field as it is reached: nodes[0].hopLimit. What is no YAML has none.
func linesOf(text []byte) map[string]int {
	lines := map[string]int{}
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(text, &document); err == nil {
		note(lines, "", &document, 0)
	}
	return lines
}

// maxNesting is more than any scenario has.
const maxNesting = 32

func note(lines map[string]int, field string, node *yamlv3.Node, depth int) {
	if depth > maxNesting {
		return
	}
	if _, noted := lines[field]; !noted {
		lines[field] = node.Line
	}
	switch node.Kind {
	case yamlv3.DocumentNode:
		for _, child := range node.Content {
			note(lines, field, child, depth+1)
		}
	case yamlv3.SequenceNode:
		for i, child := range node.Content {
			note(lines, fmt.Sprintf("%s[%d]", field, i), child, depth+1)
		}
	case yamlv3.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := join(field, node.Content[i].Value)
			lines[key] = node.Content[i].Line
			note(lines, key, node.Content[i+1], depth+1)
		}
	}
}

// locate gives each problem its line: that of its field, or, where the field is not given, of what it would be in.
func locate(err error, lines map[string]int) error {
	bad, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	for n := range bad.Problems {
		p := &bad.Problems[n]
		for field := p.Field; field != "" && p.Line == 0; field = outer(field) {
			p.Line = lines[field]
		}
	}
	return bad
}

// outer is the field that a field is in, "" for the outermost.
func outer(field string) string { return field[:max(0, strings.LastIndexAny(field, ".["))] }
