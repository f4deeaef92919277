// Package awscli drives the fake EC2 with the AWS CLI, as a person would at a prompt. It has no code of its own.
//
// The scripts in testdata are meant to be read: each line that begins with "aws" is a command as it is typed, the lines below it
// say what it prints, and "set" keeps what it printed in variables. One thing is not as it is typed: Debian 12 has version 2.9, which
// does not know AWS_ENDPOINT_URL_EC2 (2.13 is the first that does), so each command runs with --endpoint-url, in the network namespace
// of an instance of the world. Start with testdata/build.txt. script_test.go has the words
// that the scripts use, office_test.go the world in which the commands are typed.
package awscli
