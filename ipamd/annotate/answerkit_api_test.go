package annotate_test

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"

	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vpc-cni/vpc-cni/e2e/kubetest"
	"github.com/vpc-cni/vpc-cni/ipamd/kube"
)

// front is a proxy before the API server, which answers patches itself while it has a fault.
type front struct {
	fault atomic.Pointer[http.HandlerFunc]
	addr  string
	stop  func()
}

// newFront starts a proxy that speaks to the server as the administrator.
func (c *cluster) newFront() *front {
	c.t.Helper()
	control, err := server()
	if err != nil {
		c.t.Fatal(err)
	}
	transport, err := rest.TransportFor(control.Config())
	if err != nil {
		c.t.Fatal(err)
	}
	target, err := url.Parse(control.Config().Host)
	if err != nil {
		c.t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	f := &front{}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fault := f.fault.Load(); fault != nil && r.Method == http.MethodPatch {
			(*fault)(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	})
	listener, err := net.Listen("tcp", kubetest.Address+":0")
	if err != nil {
		c.t.Fatal(err)
	}
	f.addr = listener.Addr().String()
	running := &httptest.Server{Listener: listener, Config: &http.Server{Handler: handler}}
	running.Start()
	f.stop = func() {
		running.CloseClientConnections()
		running.Close()
	}
	return f
}

// says is a fault that is an answer of the server's own form.
func says(code int, reason metav1.StatusReason) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Code: int32(code), Reason: reason, Message: "told so by the test",
		})
	}
}

// throttle is a fault in the form of the server's priority and fairness: a text and a header. Source: apiserver's tooManyRequests.
func throttle(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Retry-After", "7")
	http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
}

// page is a fault that is a proxy's own page.
func page(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "<html>")
	}
}

// webhook makes a real admission webhook for pods of the test's namespace and waits until it is asked. Review nil: nobody
// serves it.
func (c *cluster) webhook(mutating bool, review func(*admissionv1.AdmissionResponse)) (remove func()) {
	c.t.Helper()
	served := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var question admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&question); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		question.Response = &admissionv1.AdmissionResponse{UID: question.Request.UID}
		review(question.Response)
		question.Request = nil
		_ = json.NewEncoder(w).Encode(question)
	}))
	if review == nil {
		served.Close()
	} else {
		c.t.Cleanup(served.Close)
	}
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: served.Certificate().Raw})
	fail, none, where := registrationv1.Fail, registrationv1.SideEffectClassNone, served.URL
	name, config := "hook."+c.namespace+".example", registrationv1.WebhookClientConfig{URL: &where, CABundle: bundle}
	rules := []registrationv1.RuleWithOperations{{
		Operations: []registrationv1.OperationType{registrationv1.Update},
		Rule:       registrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}}
	here := &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": c.namespace}}
	var object client.Object = &registrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []registrationv1.ValidatingWebhook{{
			Name: name, ClientConfig: config, Rules: rules, FailurePolicy: &fail, SideEffects: &none,
			AdmissionReviewVersions: []string{"v1"}, NamespaceSelector: here,
		}},
	}
	if mutating {
		object = &registrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []registrationv1.MutatingWebhook{{
				Name: name, ClientConfig: config, Rules: rules, FailurePolicy: &fail, SideEffects: &none,
				AdmissionReviewVersions: []string{"v1"}, NamespaceSelector: here,
			}},
		}
	}
	return c.admission(object)
}

// policy makes an admission policy that refuses every change of pods of the test's namespace.
func (c *cluster) policy() (remove func()) {
	c.t.Helper()
	name := "refuse-" + c.namespace
	policy := &registrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: registrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &registrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": c.namespace}},
				ResourceRules: []registrationv1.NamedRuleWithOperations{{RuleWithOperations: registrationv1.RuleWithOperations{
					Operations: []registrationv1.OperationType{registrationv1.Update},
					Rule:       registrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}}},
			},
			Validations: []registrationv1.Validation{{Expression: "false", Message: "no changes"}},
		},
	}
	binding := &registrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: registrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []registrationv1.ValidationAction{registrationv1.Deny},
		},
	}
	if err := c.admin.Create(c.t.Context(), policy); err != nil {
		c.t.Fatal(err)
	}
	return c.admission(binding)
}

// admission makes an object that has admission refuse changes of pods, waits until it does, and gives what takes it away.
func (c *cluster) admission(object client.Object) (remove func()) {
	c.t.Helper()
	probe := c.pod("probe", nil)
	if err := c.admin.Create(c.t.Context(), object); err != nil {
		c.t.Fatal(err)
	}
	passes := func() bool {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"probe":"1"}}}`))
		return c.admin.Patch(c.t.Context(), probe.DeepCopy(), patch, client.DryRunAll) == nil
	}
	c.until("admission refuses", func() bool { return !passes() })
	return func() {
		if err := c.admin.Delete(c.t.Context(), object); err != nil {
			c.t.Fatal(err)
		}
		c.until("admission refuses no more", passes)
	}
}

// may waits until a user may patch pods.
func (c *cluster) may(user string) {
	c.t.Helper()
	c.until(user+" may patch pods", func() bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "patch", Resource: "pods", Namespace: c.namespace},
		}}
		return c.admin.Create(c.t.Context(), review) == nil && review.Status.Allowed
	})
}

// tokens is a service account's token in a file, as kubelet keeps it.
type tokens struct {
	c    *cluster
	path string
	pod  *corev1.Pod // that the present token is bound to
}

// file puts the path of the token's file in place of the client's certificate.
func (k *tokens) file(config *kube.Config) {
	k.path = filepath.Join(filepath.Dir(config.Kubeconfig), "token")
	kubeconfig, err := clientcmd.LoadFromFile(config.Kubeconfig)
	if err != nil {
		panic(err)
	}
	for _, user := range kubeconfig.AuthInfos {
		*user = clientcmdapi.AuthInfo{TokenFile: k.path}
	}
	if err := os.WriteFile(k.path, []byte("none"), 0o600); err != nil {
		panic(err)
	}
	if err := clientcmd.WriteToFile(*kubeconfig, config.Kubeconfig); err != nil {
		panic(err)
	}
}

// renew writes a token that is bound to a new pod.
func (k *tokens) renew() {
	c := k.c
	c.t.Helper()
	account := kubetest.Account(c.namespace, "daemon")
	if err := client.IgnoreAlreadyExists(c.admin.Create(c.t.Context(), account)); err != nil {
		c.t.Fatal(err)
	}
	k.pod = kubetest.Pod(c.namespace, "", node)
	k.pod.GenerateName, k.pod.Spec.ServiceAccountName = "daemon-", "daemon"
	if err := c.admin.Create(c.t.Context(), k.pod); err != nil {
		c.t.Fatal(err)
	}
	token, err := kubetest.Token(c.t.Context(), c.admin, account, k.pod)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(k.path, []byte(token), 0o600); err != nil {
		c.t.Fatal(err)
	}
}
