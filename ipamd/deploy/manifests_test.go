package deploy_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Every object of every manifest is what its kind says, without a field that the kind does not have, and the API server would
// take it.
func TestManifestsParseAndPassADryRun(t *testing.T) {
	c := newCluster(t)
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Strict: true})
	for _, path := range files(t) {
		for _, document := range documents(t, path) {
			object, kind, err := strict.Decode(document, nil, nil)
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			if err := c.put(document, client.DryRunAll); err != nil {
				t.Errorf("%s: %s: %v", path, kind, err)
			}
			if name := object.(client.Object).GetLabels()["k8s-app"]; name != daemon {
				t.Errorf("%s: %s has label k8s-app=%q: `kubectl get -l k8s-app=%s` must find all that is ours", path, kind, name, daemon)
			}
		}
	}
}
