package ec2api_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// crowdVar makes this test's program the server of a crowd with so many ENIs.
const crowdVar = "FAKEEC2_CROWD"

func TestMain(m *testing.M) {
	if enis := os.Getenv(crowdVar); enis != "" {
		if err := serveCrowd(enis); err != nil {
			fmt.Fprintf(os.Stderr, "serve a crowd: %v\n", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func itoa(n int) string { return strconv.Itoa(n) }

// announced is what a server of a crowd says when it stands.
type announced struct {
	Address, ENI, Subnet string
	Nodes                []string
}

// usage is a server's answer to a line on its input: what it has used so far.
type usage struct {
	CPU time.Duration
	MiB float64 // resident anonymous memory
}

// serveCrowd serves until its input ends.
func serveCrowd(enis string) error {
	n, err := strconv.Atoi(enis)
	if err != nil {
		return err
	}
	c := newCrowd(n)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: c.handler, ReadHeaderTimeout: time.Minute}
	defer server.Close()
	go func() { _ = server.Serve(listener) }() // it ends with the process
	debug.FreeOSMemory()                       // what building left
	out := json.NewEncoder(os.Stdout)
	err = out.Encode(announced{Address: listener.Addr().String(), ENI: c.enis[n/2], Subnet: c.subnet, Nodes: c.nodes})
	for lines := bufio.NewScanner(os.Stdin); err == nil && lines.Scan(); {
		var u usage
		if u, err = used(); err == nil {
			err = out.Encode(u)
		}
	}
	return err
}

func used() (u usage, err error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return u, err
	}
	u.CPU = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return u, err
	}
	_, rest, _ := strings.Cut(string(text), "RssAnon:")
	kib, err := strconv.ParseFloat(strings.Fields(rest + " -")[0], 64)
	u.MiB = kib / 1024
	return u, err
}

// remoteCrowd is such a server, and a client that keeps its connection.
type remoteCrowd struct {
	announced
	b         *testing.B
	enis      int
	described string // a request for one ENI
	in        io.Writer
	out       *json.Decoder
	conn      net.Conn
	answers   *bufio.Reader
}

func startCrowd(b *testing.B, enis int) *remoteCrowd {
	b.Helper()
	cmd := exec.Command(must(os.Executable()))
	cmd.Env, cmd.Stderr = append(os.Environ(), crowdVar+"="+itoa(enis)), os.Stderr
	in, out := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			b.Error(err)
		}
	})
	r := &remoteCrowd{b: b, enis: enis, in: in, out: json.NewDecoder(out)}
	if err := r.out.Decode(&r.announced); err != nil {
		b.Fatal(err)
	}
	r.described = "Action=DescribeNetworkInterfaces&NetworkInterfaceId.1=" + r.ENI
	r.conn = must(net.Dial("tcp", r.Address))
	b.Cleanup(func() { r.conn.Close() })
	r.answers = bufio.NewReaderSize(r.conn, 1<<20)
	return r
}

// post sends a form on the kept connection and gives the answer's body.
func (r *remoteCrowd) post(form string) []byte {
	r.b.Helper()
	form += version
	must(fmt.Fprintf(r.conn, "POST / HTTP/1.1\r\nHost: ec2\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%s", len(form), form))
	answer := must(http.ReadResponse(r.answers, nil))
	body := must(io.ReadAll(answer.Body))
	_ = answer.Body.Close() // it was read to its end
	if answer.StatusCode != http.StatusOK {
		r.b.Fatalf("%s: %s", answer.Status, body)
	}
	return body
}

func (r *remoteCrowd) used() (u usage) {
	r.b.Helper()
	must(fmt.Fprintln(r.in))
	if err := r.out.Decode(&u); err != nil {
		r.b.Fatal(err)
	}
	return u
}

func (r *remoteCrowd) cpu() time.Duration { return r.used().CPU }
func (r *remoteCrowd) memory() float64    { return r.used().MiB }
