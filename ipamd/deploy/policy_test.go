package deploy_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	merge     = types.MergePatchType
	jsonPatch = types.JSONPatchType
	strategic = types.StrategicMergePatchType
	apply     = types.ApplyPatchType
)

// change is one patch of a pod by the daemon's account, and part of the refusal's text; "": accepted.
type change struct {
	name string
	kind types.PatchType
	body string
	want string
}

// set up for all changes of pods: one of everything that could be changed.
func furnished(pod *corev1.Pod) {
	pod.Labels = map[string]string{"app": "web"}
	pod.Finalizers = []string{"example.org/held"}
	pod.Annotations = map[string]string{
		"example.org/config": "on", "example.org/ip": "10.9.9.9",
		"vpc.amazonaws.com/pod-ips": "10.0.0.9", "example.org/old": "10.0.0.9",
	}
}

// refusals are changes of a furnished pod.
func refusals() []change {
	const (
		fields = "nothing of a pod but annotations"
		meta   = "nothing of a pod's metadata but annotations"
		owners = "who owns which field"
		keys   = "neither current nor retired"
		values = "hold addresses, or nothing"
	)
	return []change{
		{"image", strategic, `{"spec":{"containers":[{"name":"main","image":"evil"}]}}`, fields},
		{"toleration", jsonPatch, `[{"op":"add","path":"/spec/tolerations/-","value":{"operator":"Exists"}}]`, fields},
		{"deadline", merge, `{"spec":{"activeDeadlineSeconds":1}}`, fields},
		{"new label", merge, `{"metadata":{"labels":{"role":"admin"}}}`, meta},
		{"changed label", merge, `{"metadata":{"labels":{"app":"db"}}}`, meta},
		{"removed label", merge, `{"metadata":{"labels":{"app":null}}}`, meta},
		{"all labels", merge, `{"metadata":{"labels":null}}`, meta},
		{"new finalizer", merge, `{"metadata":{"finalizers":["example.org/held","example.org/more"]}}`, meta},
		{"no finalizers", merge, `{"metadata":{"finalizers":null}}`, meta},
		{"owner", merge, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]}}`, meta},
		{"label beside the own key", merge, `{"metadata":{"labels":{"a":"b"},"annotations":{"vpc.amazonaws.com/pod-ips":"10.0.0.1"}}}`, meta},
		{"who owns which field", merge, `{"metadata":{"managedFields":[{}]}}`, owners},
		{"who owns which field, beside the own key", merge, `{"metadata":{"managedFields":[{}],"annotations":{"vpc.amazonaws.com/pod-ips":"10.0.0.1"}}}`, owners},
		{"who owns which field, by JSON patch", jsonPatch, `[{"op":"replace","path":"/metadata/managedFields","value":[{}]}]`, owners},
		{"one owner's name", jsonPatch, `[{"op":"replace","path":"/metadata/managedFields/0/manager","value":"somebody"}]`, owners},
		{"one owner's fields", jsonPatch, `[{"op":"remove","path":"/metadata/managedFields/0/fieldsV1/f:spec"}]`, owners},
		{"label by server-side apply", apply, `{"labels":{"a":"b"}}}`, meta},
		{"new key", merge, `{"metadata":{"annotations":{"example.org/new":"10.0.0.1"}}}`, keys},
		{"new key by JSON patch", jsonPatch, `[{"op":"add","path":"/metadata/annotations/example.org~1new","value":"10.0.0.1"}]`, keys},
		{"new key by server-side apply", apply, `{"annotations":{"example.org/new":"10.0.0.1"}}}`, keys},
		{"own key in another case", merge, `{"metadata":{"annotations":{"VPC.amazonaws.com/pod-ips":"10.0.0.1"}}}`, keys},
		{"other key", merge, `{"metadata":{"annotations":{"example.org/ip":"10.0.0.1"}}}`, keys},
		{"other key removed", merge, `{"metadata":{"annotations":{"example.org/ip":null}}}`, keys},
		{"other key beside the own", merge, `{"metadata":{"annotations":{"vpc.amazonaws.com/pod-ips":"10.0.0.1","example.org/ip":""}}}`, keys},
		{"text in the own key", merge, `{"metadata":{"annotations":{"vpc.amazonaws.com/pod-ips":"{\"a\":1}"}}}`, values},
		{"long value", merge, `{"metadata":{"annotations":{"vpc.amazonaws.com/pod-ips":"` + strings.Repeat("1", 1025) + `"}}}`, values},
		{"retired key written", merge, `{"metadata":{"annotations":{"example.org/old":"10.0.0.1"}}}`, "may only be emptied or removed"},
	}
}

// valueRefusals are changes of a furnished pod that the first policy refuses where the second is not in force.
func valueRefusals() []change {
	const values = "hold addresses, or nothing"
	return []change{
		{"other key with a text", merge, `{"metadata":{"annotations":{"example.org/config":"10.0.0.1"}}}`, values},
		{"text removed", merge, `{"metadata":{"annotations":{"example.org/config":null}}}`, values},
		{"all annotations", merge, `{"metadata":{"annotations":null}}`, values},
		{"text in a new key", merge, `{"metadata":{"annotations":{"example.org/new":"on"}}}`, values},
		{"long text", merge, `{"metadata":{"annotations":{"example.org/ip":"` + strings.Repeat("1", 1025) + `"}}}`, values},
		{"label", merge, `{"metadata":{"labels":{"a":"b"}}}`, "nothing of a pod's metadata but annotations"},
	}
}

// acceptances are changes of a furnished pod.
func acceptances() []change {
	return []change{
		{"set", merge, `{"metadata":{"annotations":{"vpc.amazonaws.com/pod-ips":"10.0.0.1"}}}`, ""},
		{"set as the daemon does", merge, `{"metadata":{"annotations":{"vpc.amazonaws.com/pod-ips":"10.0.0.1"}},"spec":{"hostNetwork":null}}`, ""},
		{"set both current keys", merge, `{"metadata":{"annotations":{"vpc.amazonaws.com/pod-ips":"10.0.0.1","example.org/address":"10.0.0.1"}}}`, ""},
		{"set a list", merge, `{"metadata":{"annotations":{"vpc.amazonaws.com/pod-ips":"10.0.0.1,2001:db8::1"}}}`, ""},
		{"set a prefix", merge, `{"metadata":{"annotations":{"vpc.amazonaws.com/pod-ips":"10.0.0.1/32"}}}`, ""},
		{"set by JSON patch", jsonPatch, `[{"op":"add","path":"/metadata/annotations/vpc.amazonaws.com~1pod-ips","value":"10.0.0.1"}]`, ""},
		{"set by server-side apply", apply, `{"annotations":{"vpc.amazonaws.com/pod-ips":"10.0.0.1"}}}`, ""},
		{"set by strategic merge", strategic, `{"metadata":{"annotations":{"vpc.amazonaws.com/pod-ips":"10.0.0.1"}}}`, ""},
		{"empty", jsonPatch, `[{"op":"test","path":"/metadata/annotations/vpc.amazonaws.com~1pod-ips","value":"10.0.0.9"},
			{"op":"replace","path":"/metadata/annotations/vpc.amazonaws.com~1pod-ips","value":""}]`, ""},
		{"remove", merge, `{"metadata":{"annotations":{"vpc.amazonaws.com/pod-ips":null}}}`, ""},
		{"empty the retired key", merge, `{"metadata":{"annotations":{"example.org/old":""}}}`, ""},
		{"remove the retired key", merge, `{"metadata":{"annotations":{"example.org/old":null}}}`, ""},
		{"rename", merge, `{"metadata":{"annotations":{"vpc.amazonaws.com/pod-ips":"10.0.0.1","example.org/old":null}}}`, ""},
		{"nothing", merge, `{}`, ""},
	}
}

// keyed is a cluster whose parameter object has two current keys and a retired one.
func keyed(t *testing.T) *cluster {
	t.Helper()
	c := installed(t)
	c.keys("vpc.amazonaws.com/pod-ips, example.org/address", "example.org/old")
	return c
}

// keys changes the parameter object and waits until the policy reads it. The test's end puts the shipped one back.
func (c *cluster) keys(current, retired string) {
	c.t.Helper()
	object := parameters()
	object.Data = map[string]string{"current": current, "retired": retired}
	if err := c.admin.Update(c.t.Context(), object); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(c.restore)
	probe, user := c.pod("probe-", hereNode, furnished), c.account(c.daemonPod(hereNode))
	round := 0 // a patch that changes nothing is never refused
	c.until("the policy reads the keys", func() bool {
		round++
		err := user.patch(probe, merge, fmt.Sprintf(`{"metadata":{"annotations":{"example.org/old":"::%d"}}}`, round))
		return refusedBy(err, "aws-node-annotation-keys") && strings.Contains(err.Error(), "retired in")
	})
}

func TestPolicyRefusesAllButItsKeys(t *testing.T) {
	c := keyed(t)
	user := c.account(c.daemonPod(hereNode))
	for _, change := range refusals() {
		t.Run(change.name, func(t *testing.T) {
			pod := c.pod("p-", hereNode, furnished)
			err := user.patch(pod, change.kind, change.body)
			if !refusedBy(err, "aws-node-pods") && !refusedBy(err, "aws-node-annotation-keys") || !strings.Contains(err.Error(), change.want) {
				t.Errorf("answer %v, want a refusal with %q", err, change.want)
			}
			if now := c.read(pod); now.ResourceVersion != pod.ResourceVersion {
				t.Errorf("the pod is changed: %+v", now.ObjectMeta)
			}
		})
	}
}

func TestPolicyAcceptsItsKeys(t *testing.T) {
	c := keyed(t)
	user := c.account(c.daemonPod(hereNode))
	for _, change := range acceptances() {
		t.Run(change.name, func(t *testing.T) {
			if err := user.patch(c.pod("p-", hereNode, furnished), change.kind, change.body); err != nil {
				t.Error(err)
			}
		})
	}
}

// A pod without any annotations: the map itself is made, and goes with its last key.
func TestPolicyAndAPodWithoutAnnotations(t *testing.T) {
	c := keyed(t)
	user := c.account(c.daemonPod(hereNode))
	for _, set := range []change{
		{"merge", merge, `{"metadata":{"annotations":{"vpc.amazonaws.com/pod-ips":"10.0.0.1"}}}`, ""},
		{"JSON patch", jsonPatch, `[{"op":"add","path":"/metadata/annotations","value":{"vpc.amazonaws.com/pod-ips":"10.0.0.1"}}]`, ""},
		{"server-side apply", apply, `{"annotations":{"vpc.amazonaws.com/pod-ips":"10.0.0.1"}}}`, ""},
	} {
		t.Run(set.name, func(t *testing.T) {
			pod := c.pod("bare-", hereNode, nil)
			for _, step := range []change{
				{"other key", merge, `{"metadata":{"annotations":{"example.org/new":"10.0.0.1"}}}`, "neither current nor retired"},
				set,
				{"removed", merge, `{"metadata":{"annotations":null}}`, ""},
			} {
				err := user.patch(pod, step.kind, step.body)
				if (err == nil) != (step.want == "") || err != nil && !strings.Contains(err.Error(), step.want) {
					t.Errorf("%s: %v, want %q", step.name, err, step.want)
				}
			}
		})
	}
}
