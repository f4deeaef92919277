// Package docs keeps what people read about the daemon: it owns the README's generated tables and proves that they are not
// stale. It has no code that runs in the daemon. Start with readme_test.go.
package docs
