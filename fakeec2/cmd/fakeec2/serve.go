package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vpc-cni/vpc-cni/fakeec2/dataplane"
	"github.com/vpc-cni/vpc-cni/fakeec2/ec2api"
	"github.com/vpc-cni/vpc-cni/fakeec2/imds"
	"github.com/vpc-cni/vpc-cni/fakeec2/netlab"
	"github.com/vpc-cni/vpc-cni/fakeec2/scenario"
	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

//go:embed demo.yaml
var demo []byte

const (
	metadataURL = "http://169.254.169.254"
	ec2Port     = "80"
	// headerTimeout ends connections on which nothing is asked; clients keep theirs open between requests.
	headerTimeout = 10 * time.Second
)

// settings are serve's flags.
type settings struct {
	dir, scenario string
	listen        string  // "": EC2 answers inside the world only
	seed          *uint64 // nil: the scenario's
	verbose       bool
	check         bool // the model's books after every request
}

func parse(args []string, stdout io.Writer) (settings, error) {
	var s settings
	var seed uint64
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.StringVar(&s.dir, "dir", "", "folder for namespaces and the admin socket (required)")
	flags.StringVar(&s.scenario, "scenario", "", "file that describes the world; default: the demo's")
	flags.StringVar(&s.listen, "listen", "", "answer EC2 requests also at this address of the caller's own network, such as 127.0.0.1:4566; nobody is asked who he is")
	flags.Uint64Var(&seed, "seed", 0, "seed of ids and addresses, in place of the scenario's")
	flags.BoolVar(&s.check, "check", false, "prove the model's books after each request: each address on one ENI, accounts equal to state, no type's limit exceeded; end where they are broken")
	flags.BoolVar(&s.verbose, "v", false, "log every request")
	if err := parseFlags(flags, args, usageOf("serve", "build a world and serve it until SIGTERM or SIGINT; prints one line of JSON when it stands", "--scenario world.yaml -v"), stdout); err != nil {
		return s, err
	}
	flags.Visit(func(f *flag.Flag) {
		if f.Name == "seed" {
			s.seed = &seed
		}
	})
	if s.dir == "" {
		return s, usageError("serve: the flag --dir is required")
	}
	var err error
	if s.dir, err = filepath.Abs(s.dir); err != nil { // the paths that are announced are for programs elsewhere
		return s, fmt.Errorf("use folder %s: %w", s.dir, err)
	}
	return s, nil
}

// server is a world that is served.
type server struct {
	scenario.World
	log   *slog.Logger
	dir   string
	plane *dataplane.Plane
	ec2   *ec2api.Handler

	metadata *imds.Server
	lags     vpc.Lags   // as the scenario had them
	broken   chan error // takes what the books are broken by, once; nil: nobody looks
}

// serve builds a world, serves it until ctx ends, and takes it down again.
func serve(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parse(args, stdout)
	if err != nil {
		return err
	}
	level := slog.LevelInfo
	if s.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	v, err := build(s, log)
	if err != nil {
		return err
	}
	admin, give, err := takeFolder(ctx, s.dir)
	if err != nil {
		return err
	}
	defer give()
	if s.check {
		v.broken = make(chan error, 1)
	}
	v.plane = dataplane.New(v.Model, dataplane.Options{
		Dir: s.dir,
		Image: func(i vpc.Instance) dataplane.Image {
			if profile, known := v.RPFilter[i.ID]; known {
				return dataplane.Image{RPFilter: profile}
			}
			return dataplane.Image{RPFilter: 1}
		},
		Metadata: v.metadata,
		Log:      log,
	})
	err = v.run(ctx, admin, s.listen, stdout)
	return errors.Join(err, v.plane.Close())
}

// build makes the world of a scenario with what answers for it. An error names the file.
func build(s settings, log *slog.Logger) (*server, error) {
	text, name := demo, "demo.yaml (the built-in one)"
	if s.scenario != "" {
		var err error
		if text, err = os.ReadFile(s.scenario); err != nil {
			return nil, fmt.Errorf("read scenario: %w", err)
		}
		name = s.scenario
	}
	fail := func(err error) (*server, error) { return nil, fmt.Errorf("use scenario %s: %w", name, err) }
	parsed, err := scenario.Parse(text)
	if err != nil {
		return fail(err)
	}
	if s.seed != nil {
		parsed.Seed = *s.seed
	}
	world, err := parsed.Build(time.Now())
	if err != nil {
		return fail(err)
	}
	metadata := imds.New(world.Model, imds.Options{Log: log})
	ec2 := ec2api.New(endpointOf(parsed, world, metadata, log))
	err = errors.Join(parsed.CheckFaults(func(f scenario.Fault) error { return ec2.CheckFault(f.Rule()) }), parsed.CheckBuckets(ec2.Actions()))
	if err != nil {
		return fail(err)
	}
	return &server{World: world, log: log, dir: s.dir, ec2: ec2, metadata: metadata, lags: world.Model.Lags()}, nil
}

func (v *server) run(ctx context.Context, admin net.Listener, also string, stdout io.Writer) error {
	if err := v.plane.Sync(); err != nil {
		return fmt.Errorf("build the world: %w", err)
	}
	address, endpoint, err := v.listenEC2(ctx)
	if err != nil {
		return err
	}
	ready := ready{Ready: true, Admin: filepath.Join(v.dir, socketName), EC2: address, Metadata: metadataURL, Namespaces: v.plane.Namespaces()}
	group, ctx := errgroup.WithContext(ctx)
	if also != "" {
		var config net.ListenConfig
		listener, err := config.Listen(ctx, "tcp", also)
		if err != nil {
			return errors.Join(fmt.Errorf("listen for EC2 requests: %w", err), endpoint.Close())
		}
		ready.Listen = "http://" + listener.Addr().String()
		group.Go(func() error { return serveHTTP(ctx, listener, v.proven(v.afterPlane(v.ec2))) })
	}
	group.Go(func() error { return v.plane.Run(ctx) })
	group.Go(func() error { return v.drive(ctx) })
	group.Go(func() error { return v.endAtBreak(ctx) })
	group.Go(func() error { return serveHTTP(ctx, endpoint, v.proven(v.afterPlane(v.ec2))) })
	group.Go(func() error { return serveHTTP(ctx, admin, v.proven(v.admin())) })
	if err := json.NewEncoder(stdout).Encode(ready); err != nil {
		err = fmt.Errorf("announce the world: %w", err)
		group.Go(func() error { return err })
	}
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// listenEC2 listens for EC2 requests at the address of the service "ec2".
func (v *server) listenEC2(ctx context.Context) (url string, listener net.Listener, err error) {
	for _, service := range v.Model.Services() {
		if service.Name != scenario.EC2Service {
			continue
		}
		ns, err := netlab.Open(v.plane.ServicePath(service))
		if err != nil {
			return "", nil, err
		}
		defer ns.Close()
		listener, err := ns.Listen(ctx, "tcp4", net.JoinHostPort(service.Addr.String(), ec2Port))
		return "http://" + service.Addr.String(), listener, err
	}
	return "", nil, fmt.Errorf("find service %q: not in the model", scenario.EC2Service)
}

// drive lets the model's transitions happen when they are due.
func (v *server) drive(ctx context.Context) error {
	for {
		changed := v.Model.Changed() // before Next, so that no change is missed
		var due <-chan time.Time
		if at, something := v.Model.Next(); something {
			due = time.After(time.Until(at))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case now := <-due:
			v.Model.Advance(now)
		}
	}
}

// afterPlane holds each answer back until the data plane has followed, so that what EC2 says is also true on the wire. Real
// EC2 promises less, but there nobody can tell a slow fake from a bug of the client.
func (v *server) afterPlane(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&heldWriter{ResponseWriter: w, before: func() {
			if err := v.plane.Sync(); err != nil {
				v.log.Error("data plane is behind its model", "err", err)
			}
		}}, r)
	})
}

// proven looks at the model's books after each request, where --check says so.
func (v *server) proven(next http.Handler) http.Handler {
	if v.broken == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		if err := v.Model.Check(); err != nil {
			select {
			case v.broken <- fmt.Errorf("the model's books are broken after %s %s: %w", r.Method, r.URL.Path, err):
			default: // the first break is the one to look at
			}
		}
	})
}

// endAtBreak waits for the books to be broken.
func (v *server) endAtBreak(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-v.broken:
		return err
	}
}

// heldWriter does something before the first byte of an answer.
type heldWriter struct {
	http.ResponseWriter
	before func()
}

func (w *heldWriter) WriteHeader(status int) {
	w.release()
	w.ResponseWriter.WriteHeader(status)
}

func (w *heldWriter) Write(data []byte) (int, error) {
	w.release()
	return w.ResponseWriter.Write(data)
}

func (w *heldWriter) release() {
	if w.before != nil {
		w.before()
		w.before = nil
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (w *heldWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// serveHTTP serves until ctx ends; requests in flight end with it.
func serveHTTP(ctx context.Context, listener net.Listener, handler http.Handler) error {
	s := &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	err := s.Serve(listener)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
}

// ready is the line that says the world stands.
type ready struct {
	Ready      bool              `json:"ready"`
	Admin      string            `json:"admin"`
	EC2        string            `json:"ec2"`              // inside the world
	Listen     string            `json:"listen,omitempty"` // the same on the caller's own network
	Metadata   string            `json:"metadata"`
	Namespaces map[string]string `json:"namespaces"` // by name of node, service or outside host
}
