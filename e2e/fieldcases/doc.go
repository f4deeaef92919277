// Package fieldcases is the register of public reports about pod networking on AWS VPC: each case in a line, with the tests
// that replay it or the part of the project that is still to bring them (cases.md). A test that replays case B7 is named
// TestB7...; law_test.go holds register and tree together. It has no code.
package fieldcases
