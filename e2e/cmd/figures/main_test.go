package main

import (
	"strings"
	"testing"

	"github.com/vpc-cni/vpc-cni/e2e/figures"
)

func TestGroupsAreChosenByName(t *testing.T) {
	all, err := choose(figures.Groups(), "")
	if err != nil || len(all) != len(figures.Groups()) {
		t.Errorf("nothing named: %d groups, error %v", len(all), err)
	}
	some, err := choose(figures.Groups(), "daemon, add")
	if err != nil || len(some) != 2 || some[0].Name != "daemon" || some[1].Name != "add" {
		t.Errorf("daemon, add: %+v, error %v", some, err)
	}
	if got, err := choose(figures.Groups(), "add,deamon"); err == nil || !strings.Contains(err.Error(), "deamon") || !strings.Contains(err.Error(), "roundtrip") {
		t.Errorf("a misspelt group gives %+v, error %v; want one that names it and the groups there are", got, err)
	}
}

func TestTablesAreChosenByTarget(t *testing.T) {
	for _, target := range []string{"bench", "compare"} {
		if table, err := tableFor(target); err != nil || table.Target != target || len(table.Groups) == 0 {
			t.Errorf("%s: %+v, error %v", target, table, err)
		}
	}
	if got, err := tableFor("comparison"); err == nil || !strings.Contains(err.Error(), "compare") {
		t.Errorf("a misspelt target gives %+v, error %v; want one that names those there are", got, err)
	}
}
