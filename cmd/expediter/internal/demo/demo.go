// Package demo runs the pipeline on a sample, with many users who ask for overlapping places at the same time, and
// then checks that the guarantees held.
package demo

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/cmd/expediter/internal/api"
	"github.com/expediter-io/expediter/cmd/expediter/internal/pipeline"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/enricher/provider/catalog"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/notifier"
)

const (
	// usersPerSearch is the number of users that make each search of the sample at the same time.
	usersPerSearch = 4

	// durability describes how the embedded server stores acknowledged messages.
	durability = "one replica, default sync"

	// timeout bounds the whole run, so that a hang ends as a failure. It is far above the usual time, even on a busy
	// machine.
	timeout = 10 * time.Minute
)

// Config configures the demo.
type Config struct {
	// Asked is called when all users have their answers, before anything is counted. Defaults to none. Tests use it to
	// show that the demo can fail.
	Asked func(context.Context, *pipeline.Pipeline) error

	// Interpose puts a provider between the enrichers and the witness that counts the calls to the provider. Defaults
	// to nothing. Tests use it to show that the demo can fail.
	Interpose func(provider.Provider) provider.Provider

	// Logger gets all logs. Defaults to slog.Default().
	Logger *slog.Logger

	// Out takes the account. Defaults to io.Discard.
	Out io.Writer

	TempDir string // the folder for temporary files of the importers; defaults to the system's
}

func (c Config) withDefaults() Config {
	if c.Asked == nil {
		c.Asked = func(context.Context, *pipeline.Pipeline) error { return nil }
	}
	if c.Interpose == nil {
		c.Interpose = func(p provider.Provider) provider.Provider { return p }
	}
	if c.Out == nil {
		c.Out = io.Discard
	}
	return c
}

// Run runs the demo and writes an account of it. A failed invariant is in the report, and no error.
func Run(ctx context.Context, cfg Config) (report Report, err error) {
	cfg = cfg.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	started := time.Now()
	s, err := pipeline.Load()
	if err != nil {
		return Report{}, err
	}
	venues, err := catalog.Read(pipeline.Catalog(), contracts.ProviderWolt)
	if err != nil {
		return Report{}, err
	}
	d := &demo{
		cfg: cfg, sample: s, provider: &counting{Provider: venues, calls: map[string]int{}},
		client:  &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}},
		mailbox: &mailbox{sent: map[string]int{}, to: map[string]int{}},
	}
	two := []string{"127.0.0.1:0", "127.0.0.1:0"}
	d.pipeline, err = pipeline.Start(ctx, pipeline.Config{
		Enrichers: two, Importers: two, Logger: cfg.Logger, NATSPort: -1, Notifiers: two, Provider: cfg.Interpose(d.provider), Rules: notifyRules,
		Importer: importer.Config{
			AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, // the server of the sample's videos
			TempDir:       cfg.TempDir,
		},
		Notifier: notifier.Config{Channels: []notifier.Channel{{Channel: d.mailbox}}},
	})
	if err != nil {
		return Report{}, err
	}
	d.sayf("started    an embedded NATS server (%s), two enrichers, two importers and two notifiers, in %s",
		durability, round(time.Since(started)))
	err = d.run(ctx)
	d.client.CloseIdleConnections()
	if stopErr := d.pipeline.Stop(); err == nil {
		err = stopErr
	}
	d.report.Seconds = time.Since(started).Seconds()
	return d.report, err
}

// demo is one run.
type demo struct {
	cfg      Config
	sample   pipeline.Sample
	provider *counting
	pipeline *pipeline.Pipeline
	client   *http.Client
	mailbox  *mailbox
	report   Report
	users    []*user
}

func (d *demo) sayf(format string, args ...any) {
	fmt.Fprintf(d.cfg.Out, format+"\n", args...)
}

// service returns a client of an instance of a service.
func (d *demo) service(name, url string) *api.Client {
	return &api.Client{HTTP: d.client, Service: name, URL: url}
}

func (d *demo) run(ctx context.Context) error {
	asked := func(ctx context.Context) error { return d.cfg.Asked(ctx, d.pipeline) }
	for _, part := range []func(context.Context) error{d.askAll, asked, d.count, d.tell, d.askAgain, d.importAll, d.notifyAll} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	d.judge()
	return nil
}

// askAll has all users ask at once, half of them at one instance and half at the other, and listen at the other
// instance.
func (d *demo) askAll(ctx context.Context) error {
	var instances [2]*api.Client
	for i, e := range d.pipeline.Enrichers {
		instances[i] = d.service("enricher", e.URL())
	}
	for n := range usersPerSearch {
		for i, req := range d.sample.Requests {
			req.RequestID = fmt.Sprintf("%s-%d", req.RequestID, n+1)
			d.users = append(d.users, &user{asked: instances[(n+i)%2], heard: instances[(n+i+1)%2], req: req})
		}
	}
	started := time.Now()
	var wg sync.WaitGroup
	errs := make(chan error, len(d.users))
	for _, u := range d.users {
		wg.Go(func() {
			errs <- u.follow(ctx)
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	d.sayf("asked      %d searches by %d users at the same moment, over HTTP; all were answered after %s",
		len(d.sample.Requests), len(d.users), round(time.Since(started)))
	return nil
}

// count takes the counts of the witnesses.
func (d *demo) count(ctx context.Context) error {
	r := &d.report.Enricher
	distinct := map[string]bool{}
	for _, u := range d.users {
		r.Requests++
		r.Places += len(u.states)
		r.Patches += u.patches
		for id, state := range u.states {
			distinct[id] = true
			if !settled(state) {
				r.PendingLeft++
			}
		}
	}
	r.Distinct = len(distinct)
	r.ProviderCalls, r.RepeatedCalls = d.provider.total()
	js, err := jetstream.New(d.pipeline.Conns[0])
	if err != nil {
		return fmt.Errorf("count: %w", err)
	}
	if err := ended(ctx, js, contracts.StreamEnrichJobs); err != nil {
		return err
	}
	for name, count := range map[string]*int{contracts.StreamEnrichJobs: &r.Jobs, contracts.StreamDead: &r.DeadLetters} {
		stream, err := js.Stream(ctx, name)
		if err != nil {
			return fmt.Errorf("count stream %s: %w", name, err)
		}
		*count = int(stream.CachedInfo().State.LastSeq)
	}
	r.DuplicateJobs = r.Jobs - r.Distinct
	d.sayf("worked     %d jobs, %d more than places; %d provider calls, %d of them repeated",
		r.Jobs, r.DuplicateJobs, r.ProviderCalls, r.RepeatedCalls)
	return nil
}

// ended waits until no job of a stream waits or runs. Then the dead letter of a job that was given up is stored too; users have their
// answers earlier.
func ended(ctx context.Context, js jetstream.JetStream, name string) error {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("look at the jobs: %w", err)
	}
	for {
		left := 0
		consumers := stream.ListConsumers(ctx)
		for info := range consumers.Info() {
			left += int(info.NumPending) + info.NumAckPending
		}
		if err := consumers.Err(); err != nil {
			return fmt.Errorf("look at the jobs: %w", err)
		}
		if left == 0 {
			return nil
		}
		if !retry.Sleep(ctx, 10*time.Millisecond) {
			return fmt.Errorf("%d jobs of %s have not ended: %w", left, name, context.Cause(ctx))
		}
	}
}

// askAgain makes the searches again, one after the other.
func (d *demo) askAgain(ctx context.Context) error {
	for _, u := range d.users[:len(d.sample.Requests)] {
		again := &user{asked: u.asked, req: u.req}
		again.req.RequestID = "" // a new request
		if err := again.follow(ctx); err != nil {
			return err
		}
		d.report.Enricher.PendingAgain += again.pending
	}
	return nil
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// distance is the delay of a call to the catalogue, which imitates a remote provider.
const distance = 40 * time.Millisecond

// counting is a provider that counts its calls for each place: the demo's own evidence, independent of the service's
// counters.
type counting struct {
	provider.Provider

	mu    sync.Mutex
	calls map[string]int // by name, address and city
}

// Search implements provider.Provider.
func (c *counting) Search(ctx context.Context, place match.Place) ([]provider.Venue, error) {
	c.mu.Lock()
	c.calls[place.Name+"\x00"+place.Address+"\x00"+place.City]++
	c.mu.Unlock()
	retry.Sleep(ctx, distance)
	return c.Provider.Search(ctx, place)
}

// total returns the number of calls, and the number of repeated calls for a place.
func (c *counting) total() (total, repeated int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.calls {
		total += n
		repeated += n - 1
	}
	return total, repeated
}
