package cloud

import (
	"net/http"

	"github.com/vpc-cni/vpc-cni/fakeec2/imds"
)

// metadata is the metadata service as the world's instance reaches it.
func (w *world) metadata() http.Handler {
	server := imds.New(w.vpc, imds.Options{Now: w.time})
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		server.ServeHTTP(out, r.WithContext(imds.WithInstance(r.Context(), w.instance.ID)))
	})
}
