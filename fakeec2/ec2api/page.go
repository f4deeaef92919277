package ec2api

import (
	"encoding/base64"
	"fmt"
	"sort"
	"strconv"
)

// Page sizes that EC2 takes. Source: EC2 API reference of the actions.
const (
	minPage      = 5
	maxPage      = 1000
	maxTypesPage = 100 // DescribeInstanceTypes
)

// pageInput is the paging part of a Describe request.
type pageInput struct {
	MaxResults *int   `query:"MaxResults"`
	NextToken  string `query:"NextToken"`
}

// check refuses a size out of range, and paging together with explicit ids.
func (p pageInput) check(ids []string, idsName string, limit int) error {
	if len(ids) > 0 && p.NextToken != "" {
		return combination(idsName, "nextToken")
	}
	if p.MaxResults == nil {
		return nil
	}
	if len(ids) > 0 {
		return combination(idsName, "maxResults")
	}
	if *p.MaxResults < minPage || *p.MaxResults > limit {
		wrong := invalid("maxResults", strconv.Itoa(*p.MaxResults), fmt.Sprintf("Expecting a value between %d and %d.", minPage, limit))
		wrong.Code = codePageSize
		return wrong
	}
	return nil
}

// after is the id that the page before ended with, "" for the first page.
func (p pageInput) after(digest uint64) (string, error) {
	if p.NextToken == "" {
		return "", nil
	}
	last, ok := openToken(p.NextToken, digest)
	if !ok {
		return "", refuse(codePageToken, "The specified pagination token is not valid or is expired.")
	}
	return last, nil
}

// limit is the size of the page, 0 for all.
func (p pageInput) limit() int {
	if p.MaxResults == nil {
		return 0
	}
	return *p.MaxResults
}

// page cuts the wanted page out of items that ascend by id, and gives the token of the next one. A token names the last id
// that was given, so that pages stay whole while things come and go.
func page[T any](items []T, in pageInput, digest uint64, id func(*T) string) ([]T, string, error) {
	last, err := in.after(digest)
	if err != nil {
		return nil, "", err
	}
	items = items[sort.Search(len(items), func(i int) bool { return id(&items[i]) > last }):]
	if in.MaxResults == nil || len(items) <= *in.MaxResults {
		return items, "", nil
	}
	items = items[:*in.MaxResults]
	return items, makeToken(id(&items[len(items)-1]), digest), nil
}

func makeToken(last string, digest uint64) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%016x%s", digest, last))
}

func openToken(token string, digest uint64) (string, bool) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	want := fmt.Sprintf("%016x", digest)
	if err != nil || len(raw) <= len(want) || string(raw[:len(want)]) != want {
		return "", false
	}
	return string(raw[len(want):]), true
}

func keep[T any](things []T, match func(*T) bool) []T {
	kept := things[:0]
	for n := range things {
		if match(&things[n]) {
			kept = append(kept, things[n])
		}
	}
	return kept
}
