// Package conformance proves the fake EC2 endpoint by the real SDK: a table of action and error code, in which a pair without a
// test is a failure. It has no code of its own.
//
// The same table runs against a real account where CONFORMANCE is "real": then credentials and region come from the SDK's own
// variables, CONFORMANCE_AMI names an image to run, everything is made in VPCs of the suite's own and deleted again (running it
// costs a few cents and about an hour), and what answers otherwise than the fake is written to the file that CONFORMANCE_REPORT
// names instead of failing. Cases that only a fake can bring about (an empty token bucket, a denied caller) are left out there.
//
// Start with world_test.go, then requests_test.go for one good request of each action; questions_test.go has what no source tells of
// EC2, with its messages and statuses.
package conformance
