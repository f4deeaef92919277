package config

import (
	"fmt"
	"strings"
)

// Table renders the README's tables of settings in Markdown: the settings by group, then what is read by the AWS SDK, then
// the incumbent's settings that have no effect here and those that are refused.
func Table() string {
	var s Settings
	var b strings.Builder
	b.WriteString("| Setting | Default | Unit | Meaning | Takes |\n|---|---|---|---|---|\n")
	var current group
	for _, setting := range s.settings(nil) {
		if setting.group != current {
			current = setting.group
			fmt.Fprintf(&b, "| **%s** | | | | |\n", current)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", setting.name, code(setting.standard), setting.unit, setting.doc, cell(setting.value.accepts()))
	}
	b.WriteString("\nAn empty value counts as not set. A value that cannot be used stops the daemon with a list of all such values.\n")
	b.WriteString("\nRead by the AWS SDK: `AWS_REGION` (else the identity document's region), `AWS_ENDPOINT_URL_EC2`, " +
		"`AWS_EC2_METADATA_SERVICE_ENDPOINT`, `AWS_MAX_ATTEMPTS`, `AWS_RETRY_MODE` and the usual settings for credentials.\n")
	b.WriteString("\nSettings of the Amazon VPC CNI that are accepted without effect, or refused by name:\n\n")
	b.WriteString("| Setting | Accepted | Why |\n|---|---|---|\n")
	for _, f := range compatibility() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.name, f.harmlessWords(), f.why)
	}
	return b.String()
}

func (f foreign) harmlessWords() string {
	switch {
	case f.harmless == nil:
		return "any value, no effect"
	case len(f.harmless) == 0:
		return "only empty"
	}
	words := make([]string, 0, len(f.harmless))
	for _, value := range f.harmless {
		words = append(words, code(value))
	}
	return "only " + strings.Join(words, ", ")
}

// code sets a value in code type; nothing stays nothing.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + cell(text) + "`"
}

// cell escapes what ends a cell of a Markdown table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
