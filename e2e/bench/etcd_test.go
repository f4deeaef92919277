package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// store writes objects where the API server keeps them, as it would itself: protobuf under /registry in etcd. A real cluster's
// fifty thousand pods are there in seconds; through the API they would take minutes. The API server then serves and watches
// them as any others.
type store struct {
	client *http.Client
	url    string
	codec  runtime.Encoder
	batch  []request
}

// request is one operation of an etcd transaction, by etcd's JSON gateway.
type request struct {
	Put put `json:"requestPut"`
}

// put is a key and a value; the gateway takes bytes as base64, as encoding/json gives them.
type put struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// mostInTransaction is etcd's own limit (--max-txn-ops).
const mostInTransaction = 128

func newStore(client *http.Client) *store {
	raw := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	return &store{client: client, url: "http://127.0.0.1:2379/v3/kv/txn", codec: scheme.Codecs.EncoderForVersion(raw, corev1.SchemeGroupVersion)}
}

func (s *store) add(ctx context.Context, key string, object runtime.Object) error {
	var value bytes.Buffer
	if err := s.codec.Encode(object, &value); err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	s.batch = append(s.batch, request{put{[]byte("/registry/" + key), value.Bytes()}})
	if len(s.batch) < mostInTransaction {
		return nil
	}
	return s.flush(ctx)
}

func (s *store) flush(ctx context.Context) error {
	body, err := json.Marshal(map[string]any{"success": s.batch})
	if err != nil {
		return fmt.Errorf("encode transaction: %w", err)
	}
	s.batch = nil
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return fmt.Errorf("write to etcd: %w", err)
	}
	defer func() { _ = response.Body.Close() }() // read only
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("write to etcd: %s: %s: %w", response.Status, answer, err)
	}
	return nil
}

// The size of a large cluster.
const (
	nodesInAPI  = 5000
	podsOfNodes = 10
)

// crowdAPI puts a large cluster's nodes and their pods into the API.
func crowdAPI(ctx context.Context, s *store) error {
	created := metav1.NewTime(time.Now())
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: created, Labels: map[string]string{"app": "crowd"}}
	}
	for i := range nodesInAPI {
		node := foreignNode(i)
		if err := s.add(ctx, "minions/"+node, &corev1.Node{ObjectMeta: meta("", node)}); err != nil {
			return err
		}
		for j := range podsOfNodes {
			address := fmt.Sprintf("10.%d.%d.%d", 64+i/250, i%250, j+10)
			p := &corev1.Pod{
				ObjectMeta: meta("crowd", fmt.Sprintf("pod-%d-%d", i, j)),
				Spec: corev1.PodSpec{
					NodeName: node, RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst,
					Containers: []corev1.Container{{Name: "c", Image: "registry.example.com/team/service:v1.2.3", ImagePullPolicy: corev1.PullIfNotPresent}},
				},
				Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}, StartTime: &created},
			}
			if err := s.add(ctx, "pods/crowd/"+p.Name, p); err != nil {
				return err
			}
		}
	}
	return s.flush(ctx)
}

func foreignNode(i int) string { return fmt.Sprintf("node-%04d", i) }

// What is written is what the API server reads: the magic bytes, and the object after a way there and back.
func TestStoreWritesWhatTheAPIServerReads(t *testing.T) {
	s := newStore(nil)
	want := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0001"}}
	if err := s.add(context.Background(), "minions/node-0001", want); err != nil {
		t.Fatal(err)
	}
	value := s.batch[0].Put.Value
	if key := string(s.batch[0].Put.Key); key != "/registry/minions/node-0001" || !bytes.HasPrefix(value, []byte("k8s\x00")) {
		t.Errorf("key %q, value %q", key, value)
	}
	got, kind, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if node, ok := got.(*corev1.Node); !ok || node.Name != want.Name || kind.Kind != "Node" || kind.Version != "v1" {
		t.Errorf("decoded %v %+v", kind, got)
	}
}
