package ipamd_test

import (
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vpc-cni/vpc-cni/e2e/kubetest"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
	"github.com/vpc-cni/vpc-cni/ipamd/annotate"
)

// annotated is a world with 20 pod addresses whose pods are objects of a real API server, behind an address of the VPC.
type annotated struct {
	*world
	admin     client.Client
	namespace string // its name is the node's too: several worlds share the server
}

func newAnnotated(t *testing.T, results bool, settings ...string) *annotated {
	t.Helper()
	w := newWorldOf(t, vpc.InstanceType{Name: "wide", ENIs: 4, IPv4: 6}, settings...)
	folder := filepath.Join(w.dir, "nowhere")
	if results {
		folder = filepath.Join(w.dir, "cache")
	}
	w.env = append(w.env, "HOST_CNI_CACHE_PATH="+folder, "ANNOTATE_POD_IP=true")
	a := &annotated{world: w}
	server, err := apiServer()
	w.check(err)
	a.admin, err = client.New(server.Config(), client.Options{})
	w.check(err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "n-"}}
	w.check(a.admin.Create(t.Context(), namespace))
	a.namespace = namespace.Name
	a.kubeconfig(a.namespace, kubetest.AdminGroup)
	w.env = append(w.env, "KUBECONFIG="+filepath.Join(w.dir, "kubeconfig"), "MY_NODE_NAME="+a.namespace)
	w.check(w.model.AddService(vpc.Service{Name: "apiserver", Addr: netip.MustParseAddr(apiAddr), SubnetID: w.model.Services()[0].SubnetID}))
	place := filepath.Join(w.dir, "netns", "apiserver")
	w.await("namespace of the API server's address", func() bool { _, err := os.Stat(place); return err == nil && w.plane.Sync() == nil })
	a.passOn(w.open("apiserver"))
	return a
}

// kubeconfig makes the daemon's next life a user's.
func (a *annotated) kubeconfig(user string, groups ...string) {
	a.t.Helper()
	server, err := apiServer()
	a.check(err)
	path := filepath.Join(a.dir, "kubeconfig")
	a.check(server.Kubeconfig(path, user, groups...))
	kubeconfig, err := clientcmd.LoadFromFile(path)
	a.check(err)
	for _, cluster := range kubeconfig.Clusters {
		cluster.Server = "https://" + apiAddr + ":6443"
		cluster.TLSServerName = kubetest.Address // what the certificate names
	}
	a.check(clientcmd.WriteToFile(*kubeconfig, path))
}

// passOn carries connections from the VPC to where the API server really is.
func (a *annotated) passOn(ns *netlab.Namespace) {
	a.t.Helper()
	listener, err := ns.Listen(a.t.Context(), "tcp", apiAddr+":6443")
	a.check(err)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { carry(conn) })
		}
	})
	a.t.Cleanup(func() {
		a.kill() // its connections end with it
		_ = listener.Close()
		running.Wait()
		_ = ns.Close()
	})
}

func carry(conn net.Conn) {
	defer conn.Close()
	server, err := net.DialTimeout("tcp", kubetest.Address+":6443", patience)
	if err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { _, _ = io.Copy(conn, server); _ = conn.Close() })
	_, _ = io.Copy(server, conn)
	_ = server.Close()
	back.Wait()
}

// pod makes a pod's object and a sandbox for it.
func (a *annotated) pod(name string) *pod {
	a.t.Helper()
	object := kubetest.Pod(a.namespace, name, a.namespace)
	a.check(a.admin.Create(a.t.Context(), object))
	p := a.sandbox(name)
	p.conf.Args[1][1], p.conf.Args[4][1] = a.namespace, string(object.UID)
	return p
}

// run is a pod whose ADD succeeds.
func (a *annotated) running(name string) *pod {
	a.t.Helper()
	p := a.pod(name)
	a.check(a.tryAdd(p))
	return p
}

// newer makes a further sandbox of a pod.
func (a *annotated) newer(of *pod, name string) *pod {
	a.t.Helper()
	p := a.sandbox(name)
	p.conf.Args[1], p.conf.Args[2], p.conf.Args[4] = of.conf.Args[1], of.conf.Args[2], of.conf.Args[4]
	return p
}

// value is the pod's annotation, and whether there is one.
func (a *annotated) value(name string) (string, bool) {
	a.t.Helper()
	object := &corev1.Pod{}
	a.check(a.admin.Get(a.t.Context(), client.ObjectKey{Namespace: a.namespace, Name: name}, object))
	value, found := object.Annotations[annotate.DefaultKey]
	return value, found
}

// reads waits until the pod's annotation is the text.
func (a *annotated) reads(name, want string) {
	a.t.Helper()
	a.await("annotation of "+name+" is "+want, func() bool { value, found := a.value(name); return found && value == want })
}

// steady fails the test unless what is left is what the live pods have: their addresses, veths and records, in the state file,
// the kernel and the API, and nothing else's.
func (a *annotated) steady(live ...*pod) {
	a.t.Helper()
	a.audited("steady state", func() string { return a.left(live) })
	for _, p := range live {
		a.reaches(p, ec2Addr+":80")
		a.reads(p.conf.Args[2][1], p.addr.String())
	}
}

// left says where there is something else than what the live pods have.
func (a *annotated) left(live []*pod) string {
	a.t.Helper()
	text, err := os.ReadFile(a.statePath())
	a.check(err)
	links := regexp.MustCompile(`(?m)^eni[0-9a-f]{11}`).FindAllString(a.run("ip", "-br", "link"), -1)
	routes := regexp.MustCompile(`(?m)^[0-9.]+ dev eni`).FindAllString(a.run("ip", "route", "show", "table", "7000"), -1)
	sandboxes := map[string]int{}
	for _, match := range regexp.MustCompile(`"sandbox":"([^"]*)"`).FindAllStringSubmatch(string(text), -1) {
		sandboxes[match[1]]++
	}
	wrong := len(sandboxes) != len(live)
	for _, p := range live {
		wrong = wrong || sandboxes[p.conf.ContainerID] != 2 // its assignment and its annotation
	}
	var pods corev1.PodList
	a.check(a.admin.List(a.t.Context(), &pods, client.InNamespace(a.namespace)))
	values := 0
	for _, object := range pods.Items {
		if object.Annotations[annotate.DefaultKey] != "" {
			values++
		}
	}
	if wrong || len(links) != len(live) || len(routes) != len(live) || values != len(live) {
		return "links " + a.run("ip", "-br", "link") + string(text)
	}
	return ""
}
