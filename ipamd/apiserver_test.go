package ipamd_test

import (
	"sync"

	"github.com/vpc-cni/vpc-cni/e2e/kubetest"
)

// apiAddr is where the VPC has the API server.
const apiAddr = "10.0.255.10"

// apiServer is the one API server of this test binary. The namespaces that the tests run in end it.
var apiServer = sync.OnceValues(kubetest.Start)
