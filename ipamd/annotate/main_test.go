package annotate_test

import (
	"testing"

	"github.com/vpc-cni/vpc-cni/ipamd/kube/kubetest"
)

func TestMain(m *testing.M) { kubetest.Main(m) }
