package apiserver

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/vpc-cni/vpc-cni/e2e/account"
)

// auditPolicy keeps every write to a pod with the object that came of it, and what the daemons ask.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["%[1]s", "%[2]s"]
  verbs: [get, list, watch]
  resources: [{group: "", resources: [pods]}]
- level: RequestResponse
  verbs: [create, update, patch, delete]
  resources: [{group: "", resources: [pods, pods/status]}]
- level: Metadata
  users: ["%[1]s", "%[2]s"]
- level: None
`

// audit turns the audit log on, if it is wanted.
func (o Options) audit(server *envtest.APIServer) error {
	if o.Audit == "" {
		return nil
	}
	policy := filepath.Join(o.Dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, fmt.Appendf(nil, auditPolicy, account.IPAMD.Name(), account.DaemonUser), 0o600); err != nil {
		return fmt.Errorf("write audit policy: %w", err)
	}
	server.Configure().Set("audit-policy-file", policy).Set("audit-log-path", o.Audit).Set("audit-log-mode", "blocking")
	return nil
}
