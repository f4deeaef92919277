package conformance

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

// TestSuiteRunsAgainstAnAccount runs the suite as against a real account, by the SDK's own variables, but the account is a fake in which
// nothing takes time and unknown groups have EC2's other code: that, and what the lack of time brings, is what it writes down.
func TestSuiteRunsAgainstAnAccount(t *testing.T) {
	if real() {
		t.Skip("CONFORMANCE=real already runs the suite on a real account")
	}
	account := httptest.NewServer(ec2api.New(ec2api.Options{
		VPC: vpc.New(vpc.Options{Lags: &vpc.Lags{}}), Inferred: ec2api.Inferred{GroupNotFound: "InvalidSecurityGroupID.NotFound"},
	}))
	defer account.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(t.TempDir(), "differences")
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^(TestConformance|TestQuestions)$")
	cmd.Env = append(os.Environ(), "CONFORMANCE=real", "CONFORMANCE_AMI=ami-0123456789abcdef0", "CONFORMANCE_REPORT="+report, "CONFORMANCE_TABLE=",
		"AWS_ENDPOINT_URL_EC2="+account.URL, "AWS_REGION=us-west-2", "AWS_ACCESS_KEY_ID=x", "AWS_SECRET_ACCESS_KEY=x", "AWS_EC2_METADATA_DISABLED=true")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	groups := 0
	for line := range strings.Lines(string(text)) {
		switch {
		case strings.Contains(line, `EC2 answers "InvalidSecurityGroupID.NotFound" where the fake says InvalidGroup.NotFound`):
			groups++
		case strings.HasPrefix(line, "a group that is not there: "):
		case strings.HasPrefix(line, `DetachNetworkInterface : EC2 answers "InvalidAttachmentID.NotFound" where the fake says IncorrectState`): // it is gone at once
		default:
			t.Errorf("a difference that is none: %s", line)
		}
	}
	if groups < 5 {
		t.Errorf("%d differences of groups in:\n%s", groups, text)
	}
}
