// Package badday is what a bad day is judged by: the fewest requests that what happened obliges the daemons to (minimum.go),
// and the requests that they made, with the times at which the API server changed its pods (audit.go).
//
// It owns no cluster and causes no trouble: e2e/suites/badday does. Start with History.
package badday
