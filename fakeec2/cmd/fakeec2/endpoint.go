package main

import (
	"log/slog"
	"slices"

	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/imds"
	"github.com/vpc-cni/vpc-cni/fakeec2/scenario"
)

// endpointOf says what the EC2 endpoint of a scenario's world is like.
func endpointOf(s scenario.Scenario, world scenario.World, metadata *imds.Server, log *slog.Logger) ec2api.Options {
	options := ec2api.Options{
		VPC: world.Model, Faults: world.Faults, Buckets: world.Buckets, Log: log, MaxUnpaged: s.Limits.Unpaged,
		Inferred: ec2api.Inferred{
			AuthFailureStatus: s.Inferred.AuthFailureStatus, GroupNotFound: s.Inferred.GroupNotFound,
			PageToken: s.Inferred.PageToken, PageSize: s.Inferred.PageSize,
		},
	}
	if s.Signed {
		options.Keys = func(id string) (ec2api.Key, bool) {
			if at := slices.IndexFunc(s.Keys, func(k scenario.Key) bool { return k.ID == id }); at >= 0 {
				return ec2api.Key{Secret: s.Keys[at].Secret, Token: s.Keys[at].Token, OptedIn: true}, true
			}
			secret, good, known := metadata.Key(id)
			return ec2api.Key{Secret: secret, Good: good, OptedIn: true}, known
		}
	}
	return options
}
