// Package fuzz has the fuzz target of the fake EC2 endpoint: its form decoder, filters, tokens, and the laws behind them. It has no
// code of its own, and is apart from the endpoint's other tests because fuzzing compiles everything that a test imports anew, which
// the SDK is too big for. The target of the scenario file is beside its parser.
package fuzz
