// Command geoprocessor runs geometry operations that are jobs of a JetStream stream, each once for all that have the same
// inputs, though workers are killed. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/natsrun"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "geoprocessor:", err)
		os.Exit(1)
	}
}

// settings are the flags and the environment.
type settings struct {
	command     string
	concurrency int
	port        int
	run         string
	slow        time.Duration
	url         string
}

func parse(args []string, out io.Writer) (settings, error) {
	s := settings{url: os.Getenv("NATS_URL")}
	flags := flag.NewFlagSet("geoprocessor", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.IntVar(&s.concurrency, "concurrency", 4, "how many jobs a worker runs at once")
	flags.IntVar(&s.port, "port", 4222, "where server listens")
	flags.StringVar(&s.run, "run", "job", "prefix of the IDs of submitted jobs")
	flags.DurationVar(&s.slow, "slow", 0, "how much longer each operation takes")
	flags.Usage = func() {
		fmt.Fprintln(out, "usage: geoprocessor [flags] demo|server|work|submit|stats")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if s.command = flags.Arg(0); s.command == "" {
		s.command = "demo"
	}
	return s, nil
}

// run runs the program.
func run(ctx context.Context, args []string, out io.Writer) error {
	s, err := parse(args, out)
	if err != nil {
		return err
	}
	if s.command == "server" {
		return serve(ctx, s.port, out)
	}
	nc, end, err := connect(s.url)
	if err != nil {
		return err
	}
	defer end()
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	p, err := newProcessor(ctx, js, out, s.slow)
	if err != nil {
		return err
	}
	defer p.flight.Close()
	switch s.command {
	case "demo":
		return p.demo(ctx, js)
	case "work":
		p.sayf("worker %d: kill -9 it in the middle of a job", os.Getpid())
		if err := p.work(ctx, js, s.concurrency); err != nil {
			return err
		}
		return p.statistics(context.WithoutCancel(ctx))
	case "submit":
		return p.submit(ctx, js, s.run)
	case "stats":
		return p.statistics(ctx)
	default:
		return fmt.Errorf("no command %q: want demo, server, work, submit or stats", s.command)
	}
}

// serve runs a server for the other commands until ctx ends.
func serve(ctx context.Context, port int, out io.Writer) error {
	srv, err := natsrun.Start(natsrun.Config{Port: port})
	if err != nil {
		return err
	}
	defer srv.Stop()
	if _, err := fmt.Fprintf(out, "export NATS_URL=%s\n", srv.URL()); err != nil {
		return fmt.Errorf("say where: %w", err)
	}
	<-ctx.Done()
	return nil
}

// connect connects to the server at url, or to a separate one without a url.
func connect(url string) (nc *nats.Conn, end func(), err error) {
	if url != "" {
		nc, err := nats.Connect(url, nats.MaxReconnects(-1))
		if err != nil {
			return nil, nil, fmt.Errorf("connect to NATS_URL %s: %w", url, err)
		}
		return nc, nc.Close, nil
	}
	srv, err := natsrun.Start(natsrun.Config{})
	if err != nil {
		return nil, nil, err
	}
	nc, err = srv.Connect()
	if err != nil {
		srv.Stop()
		return nil, nil, err
	}
	return nc, func() { nc.Close(); srv.Stop() }, nil
}

// demo works on two runs of the same jobs, and ends.
func (p *processor) demo(ctx context.Context, js jetstream.JetStream) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- p.work(ctx, js, 1) }()
	err := errors.Join(p.submit(ctx, js, "monday"), p.submit(ctx, js, "tuesday"), p.idle(ctx, js))
	stop()
	return errors.Join(err, <-ended, p.statistics(context.WithoutCancel(ctx)))
}

// submit enqueues the sample's jobs and prints their results.
func (p *processor) submit(ctx context.Context, js jetstream.JetStream, run string) error {
	jobs, err := sampleJobs(run)
	if err != nil {
		return err
	}
	for _, job := range jobs {
		if err := enqueue(ctx, js, job); err != nil {
			return err
		}
	}
	for _, job := range jobs {
		out, entry, err := p.result(ctx, job)
		if err != nil {
			return fmt.Errorf("%s: %w", job.ID, err)
		}
		p.sayf("%s: result of %.0f m² from %s, attempt %d", job.ID, out.Area, entry.Job, entry.Attempt)
	}
	return nil
}

// idle waits until every job has left the stream.
func (p *processor) idle(ctx context.Context, js jetstream.JetStream) error {
	for {
		s, err := js.Stream(ctx, stream)
		if err != nil {
			return fmt.Errorf("look at stream %s: %w", stream, err)
		}
		if s.CachedInfo().State.Msgs == 0 {
			return nil
		}
		if !retry.Sleep(ctx, 20*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}
