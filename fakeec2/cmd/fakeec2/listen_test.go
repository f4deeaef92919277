package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestEC2AnswersOnTheCallersNetwork(t *testing.T) {
	s := start(t, "", "--listen", "127.0.0.1:0")
	if got, err := ask(http.DefaultClient, "POST", s.listen+"/", "Action=DescribeInstances&Version=2016-11-15", "Content-Type", "application/x-www-form-urlencoded"); err != nil || !strings.Contains(got, "10.0.1.10") {
		t.Errorf("DescribeInstances: %v: %s", err, got)
	}
	if err := run(t.Context(), []string{"serve", "--dir", t.TempDir(), "--listen", strings.TrimPrefix(s.listen, "http://")}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a second server at the same address: %v", err)
	}
}
