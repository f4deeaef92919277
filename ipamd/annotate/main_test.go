package annotate_test

import (
	"testing"

	"github.com/vpc-cni/vpc-cni/e2e/kubetest"
)

func TestMain(m *testing.M) { kubetest.Main(m) }
