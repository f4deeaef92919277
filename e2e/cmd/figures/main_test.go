package main

import (
	"strings"
	"testing"

	"github.com/vpc-cni/vpc-cni/e2e/figures"
)

func TestGroupsAreChosenByName(t *testing.T) {
	all, err := choose("")
	if err != nil || len(all) != len(figures.Groups()) {
		t.Errorf("nothing named: %d groups, error %v", len(all), err)
	}
	some, err := choose("daemon, add")
	if err != nil || len(some) != 2 || some[0].Name != "daemon" || some[1].Name != "add" {
		t.Errorf("daemon, add: %+v, error %v", some, err)
	}
	if got, err := choose("add,deamon"); err == nil || !strings.Contains(err.Error(), "deamon") || !strings.Contains(err.Error(), "roundtrip") {
		t.Errorf("a misspelt group gives %+v, error %v; want one that names it and the groups there are", got, err)
	}
}
