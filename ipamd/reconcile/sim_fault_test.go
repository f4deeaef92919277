package reconcile_test

import (
	"cmp"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/fault"
	"github.com/vpc-cni/vpc-cni/ipamd/pool"
)

// spoilt is a fault of EC2's: which calls, and what goes wrong with them.
type spoilt struct {
	action string // "" is every action; "Observe" a reading
	how    string // see below
	code   string // of refuse
	left   int    // so many calls; 0: all, until
	until  time.Time
}

// What can go wrong with a call.
const (
	refuse      = "refuse"       // with a code; nothing is carried out
	answerLost  = "answer lost"  // carried out
	requestLost = "request lost" // nothing is carried out
	hangDone    = "hang, done"   // carried out, no answer until the deadline
	hangUndone  = "hang, undone" // nothing is carried out, no answer until the deadline
)

// before is what happens to a call before EC2 carries it out.
func (c *simCloud) before(ctx context.Context, action string) (*spoilt, error) {
	now := time.Now()
	if now.Before(c.slow) && c.n != nil {
		if err := c.n.pauseUpTo(ctx, "slow call", int64(20*time.Second)); err != nil {
			return nil, failed("no answer in time")
		}
	}
	if now.Before(c.throttled) {
		return nil, c.refusal(action, fault.ThrottleCode)
	}
	at := slices.IndexFunc(c.spoilt, func(s *spoilt) bool {
		return (s.action == "" || s.action == action) && (s.left > 0 || now.Before(s.until))
	})
	if at < 0 {
		return nil, nil
	}
	s := c.spoilt[at]
	if s.left--; s.left <= 0 && !now.Before(s.until) {
		c.spoilt = slices.Delete(c.spoilt, at, at+1)
	}
	c.n.covered(s.how + " " + action)
	c.n.troubled(3 * time.Minute) // it may have waited for this call for long
	if s.how == refuse {
		c.n.troubled(recovery(classOf(action, s.code)))
	}
	switch s.how {
	case refuse:
		return nil, c.refusal(action, s.code)
	case requestLost:
		return nil, failed("the request was lost")
	case hangUndone:
		<-ctx.Done()
		return nil, failed("no answer in time")
	}
	return s, nil
}

// after is what happens to the answer of a call that was carried out.
func (c *simCloud) after(ctx context.Context, s *spoilt) error {
	switch {
	case s == nil:
		return nil
	case s.how == hangDone:
		<-ctx.Done()
		return failed("no answer in time")
	}
	return failed("the answer was lost")
}

func failed(why string) error { return &pool.CloudError{Class: pool.ClassUnknown, Message: why} }

func (c *simCloud) refusal(action, code string) error {
	class := classOf(action, code)
	if c.n != nil {
		c.n.covered("class " + string(class))
		c.n.covered("code " + code)
	}
	message := "injected"
	if code == fault.ThrottleCode {
		message = "Request limit exceeded."
	}
	return &pool.CloudError{Class: class, Code: code, Message: message}
}

// recovery is how long a class of refusal may be felt after the last one: the pool's own longest pauses.
func recovery(class pool.CloudClass) time.Duration {
	switch class {
	case pool.ClassThrottled:
		return 2 * time.Minute
	case pool.ClassDenied, pool.ClassInvalid:
		return 8 * time.Minute
	case pool.ClassSubnetFull:
		return 4 * time.Minute
	case pool.ClassLimit:
		return 95 * time.Minute
	}
	return 2 * time.Minute
}

// codeTable is what ipamd/cloud/errors.go and the model say of EC2's codes. It is read from the source: importing the
// adapter would link the AWS SDK into every run of every mutant.
type codeTable struct {
	class   map[string]pool.CloudClass
	special map[[2]string]pool.CloudClass
	codes   []string // all that can be drawn, ascending
}

var codes = sync.OnceValue(func() codeTable {
	t := codeTable{class: map[string]pool.CloudClass{}, special: map[[2]string]pool.CloudClass{}}
	named := map[string]pool.CloudClass{}
	for _, class := range classes {
		named[className(class)] = class
	}
	inspect("../cloud/errors.go", func(node ast.Node) {
		pair, ok := node.(*ast.KeyValueExpr)
		if !ok {
			return
		}
		value, ok := pair.Value.(*ast.SelectorExpr)
		if !ok {
			return
		}
		class, ok := named[value.Sel.Name]
		if !ok {
			panic("ipamd/cloud/errors.go has a class that the simulation does not know: " + value.Sel.Name)
		}
		switch key := pair.Key.(type) {
		case *ast.BasicLit:
			t.class[unquoted(key)] = class
		case *ast.CompositeLit:
			t.special[[2]string{unquoted(key.Elts[0]), unquoted(key.Elts[1])}] = class
		}
	})
	for code := range t.class {
		t.codes = append(t.codes, code)
	}
	inspect("../../fakeec2/vpc/errors.go", func(node ast.Node) {
		spec, ok := node.(*ast.ValueSpec)
		if ok && strings.HasPrefix(spec.Names[0].Name, "Code") {
			t.codes = append(t.codes, unquoted(spec.Values[0]))
		}
	})
	t.codes = append(t.codes, fault.ThrottleCode)
	slices.Sort(t.codes)
	t.codes = slices.Compact(t.codes)
	if len(t.class) < 40 || len(t.special) < 1 || len(t.codes) <= len(t.class) {
		panic(fmt.Sprintf("the tables of codes were not understood: %d, %d, %d", len(t.class), len(t.special), len(t.codes)))
	}
	return t
})

// classes are all classes of errors.
var classes = []pool.CloudClass{pool.ClassThrottled, pool.ClassSubnetFull, pool.ClassLimit, pool.ClassGone, pool.ClassInUse,
	pool.ClassDenied, pool.ClassInvalid, pool.ClassUnknown}

// className is the Go name of a class's constant.
func className(class pool.CloudClass) string {
	var name strings.Builder
	for word := range strings.SplitSeq(string(class), "-") {
		name.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return "Class" + name.String()
}

func inspect(path string, look func(ast.Node)) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		panic(err)
	}
	ast.Inspect(file, func(node ast.Node) bool { look(node); return true })
}

func unquoted(node ast.Expr) string {
	text, err := strconv.Unquote(node.(*ast.BasicLit).Value)
	if err != nil {
		panic(err)
	}
	return text
}

// apiNames are EC2's names of the pool's actions.
var apiNames = map[string]string{
	"CreateENI": "CreateNetworkInterface", "AttachENI": "AttachNetworkInterface", "SetDeleteOnTermination": "ModifyNetworkInterfaceAttribute",
	"AssignAddresses": "AssignPrivateIpAddresses", "UnassignAddresses": "UnassignPrivateIpAddresses", "DetachENI": "DetachNetworkInterface",
	"DeleteENI": "DeleteNetworkInterface", "Observe": "DescribeNetworkInterfaces",
}

// classOf is the cloud adapter's own sorting of codes.
func classOf(action, code string) pool.CloudClass {
	t := codes()
	class := cmp.Or(t.special[[2]string{apiNames[action], code}], t.class[code])
	return cmp.Or(class, pool.ClassInvalid)
}
