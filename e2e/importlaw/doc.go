// Package importlaw proves the project's import law on the packages as the go tool sees them. It has no code of its own:
// the law stands in law_test.go as a table, and in .golangci.yml for the editor.
package importlaw
