// Package account is the users that the harness's programs speak to the API server as, and where their kubeconfigs are.
//
// It owns names only. What each user may do is e2e/apiserver's, which makes them.
package account

import "path/filepath"

// User is one of those that speak to the server.
type User string

// The users. Admin may everything; the others have a ClusterRole of what they need and no more.
const (
	Admin      User = "admin"
	IPAMD      User = "ipamd"
	Sandbox    User = "sandbox"
	PolicyGate User = "policygate"
)

// Limited are the users with a ClusterRole of their own.
func Limited() []User { return []User{IPAMD, Sandbox, PolicyGate} }

// Kubeconfig is where the kubeconfig of a user is, below the server's folder.
func Kubeconfig(dir string, user User) string {
	return filepath.Join(dir, string(user)+".kubeconfig")
}

// Name is the user's name in the cluster.
func (u User) Name() string { return "vpc-cni:" + string(u) }

// The daemon as the shipped manifests (ipamd/deploy) make it: a service account, and the role that lets it patch pods.
const (
	DaemonNamespace = "kube-system"
	DaemonName      = "aws-node"
	DaemonUser      = "system:serviceaccount:" + DaemonNamespace + ":" + DaemonName
	DaemonGrant     = "aws-node-annotations"
)
