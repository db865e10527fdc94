// Package doctor examines a deployment and reports its problems, each with the shell command that mends it.
//
// A check is a function in [checks]. All checks run at the same time, each within its own time limit, so that a check that
// hangs does not hide the others. Checks read. To probe permissions they publish messages for a stream that does not exist, so
// that every stream refuses them. They write one record, like that of the services' readiness.
package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/service/console"
	"github.com/expediter-io/expediter/pkg/worker/inspect"
)

const (
	// Error means that a part of the deployment does not work, or will not work when it is needed.
	Error = console.Error

	// Warning means that an operator should look at the finding.
	Warning = console.Warning
)

// Finding is one problem of the deployment. Its cure is a line for a shell; one that needs an edit first says so in a
// comment.
type Finding = console.Finding

// Report is the result of an examination.
type Report struct {
	// Findings are sorted by severity, thing and id.
	Findings []Finding `json:"findings"`
	// Skipped lists the checks that could not be made, with the reasons.
	Skipped []string `json:"skipped,omitempty"`
}

// Failed reports whether there is an error.
func (r Report) Failed() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Error })
}

// Config configures an examination.
type Config struct {
	// Account is the account of the streams, under whose API prefix they are reached. Defaults to all accounts that
	// answer.
	Account string
	// As is the user of deploy/nats as which Connect authenticates, and whose permissions are probed. A service sees its own
	// streams only. Defaults to none, for an administrator.
	As string
	// Assets are the options of the declared streams and buckets. Replicas default to 3 in a cluster, and 1
	// elsewhere.
	Assets contracts.AssetOptions
	// Connect connects to Server. Required.
	Connect func(...nats.Option) (*nats.Conn, error)
	// Environment has the variables of the services.
	Environment map[string]string
	// Flags are the flags with which commands of cures reach the same server, such as "--server nats://n1:4222".
	Flags string
	// Monitors are the addresses of servers' HTTP monitoring, such as http://127.0.0.1:8222. Defaults to none.
	Monitors []string
	// ReadOnly writes no record to the buckets. Defaults to false.
	ReadOnly bool
	// Server is the address of the server. Required.
	Server string
	// Timeout bounds the examination. Defaults to 30 seconds.
	Timeout time.Duration
}

// examination is one run.
type examination struct {
	Config

	nc      *nats.Conn // nil where there is no connection
	targets []target
	secrets []string

	mu       sync.Mutex // guards the fields below
	findings []Finding
	skipped  []string
	denied   []string // subjects of the connection's permission violations

	askWorkers sync.Once
	workers    []inspect.Info
}

// target is an account with the services whose streams are in it.
type target struct {
	account  string // "" for the user's own
	js       jetstream.JetStream
	services []string
}

// name names the account.
func (t target) name() string {
	if t.account == "" {
		return "account of the user"
	}
	return "account " + t.account
}

// suffix returns the account as a suffix of the name of a thing in it.
func (t target) suffix() string {
	if t.account == "" {
		return ""
	}
	return " of " + t.account
}

// checks are all checks, by their names in Skipped.
var checks = []struct {
	name   string
	online bool // needs a connection
	run    func(*examination, context.Context)
}{
	{"connection", true, (*examination).checkConnection},
	{"servers", false, (*examination).checkServers},
	{"streams", true, (*examination).checkStreams},
	{"consumers", true, (*examination).checkConsumers},
	{"accounts", true, (*examination).checkAccounts},
	{"permissions", true, (*examination).checkPermissions},
	{"writes", true, (*examination).checkWrites},
	{"services", true, (*examination).checkServices},
	{"work", true, (*examination).checkWork},
	{"environment", false, (*examination).checkEnvironment},
	{"far sides", false, (*examination).checkFarSides},
}

const (
	defaultTimeout = 30 * time.Second

	// reserve is the divisor of the timeout: one part is for the connection, and the rest for the checks.
	reserve = 3

	// once bounds a single request.
	once = 4 * time.Second
)

// Run runs all checks. It returns within Config.Timeout plus a second for closing connections.
func Run(ctx context.Context, cfg Config) Report {
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	ctx, end := context.WithTimeout(ctx, cfg.Timeout)
	defer end()
	channels := slices.AppendSeq(slices.Clone(cfg.Assets.Channels), maps.Keys(gateways(cfg.Environment)))
	slices.Sort(channels)
	cfg.Assets.Channels = slices.Compact(channels)
	e := &examination{Config: cfg, secrets: secrets(cfg.Environment)}
	first, cancel := context.WithTimeout(ctx, cfg.Timeout/reserve)
	defer cancel()
	if e.connect(first) {
		defer e.nc.Close()
		e.findTargets(first)
	}
	bounded, stop := context.WithTimeout(ctx, cfg.Timeout*(reserve-1)/reserve)
	defer stop()
	var running sync.WaitGroup
	for _, c := range checks {
		if c.online && e.nc == nil {
			continue
		}
		running.Go(func() { e.bounded(bounded, c.name, c.run) })
	}
	running.Wait()
	return e.report()
}

// bounded runs a check, and abandons it when it does not heed its context.
func (e *examination) bounded(ctx context.Context, name string, run func(*examination, context.Context)) {
	done := make(chan struct{})
	go func() { defer close(done); run(e, ctx) }()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	select {
	case <-done:
	case <-time.After(time.Second):
		e.skipf("%s: no end within the time for it", name)
	}
}

// add adds a finding. The problem is a format.
func (e *examination) add(id string, severity console.Severity, of, cure, problem string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.findings = append(e.findings, Finding{
		ID: id, Severity: severity, Of: of, Problem: fmt.Sprintf(problem, args...), Cure: strings.TrimSpace(cure),
	})
}

func (e *examination) skipf(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.skipped = append(e.skipped, fmt.Sprintf(format, args...))
}

// report returns the findings so far, without secrets and without repetitions.
func (e *examination) report() Report {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := Report{Findings: []Finding{}}
	for _, f := range e.findings {
		f.Of, f.Problem, f.Cure = e.clean(f.Of), e.clean(f.Problem), e.clean(f.Cure)
		if !slices.Contains(r.Findings, f) {
			r.Findings = append(r.Findings, f)
		}
	}
	slices.SortFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Of, b.Of), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Problem, b.Problem))
	})
	for _, s := range e.skipped {
		r.Skipped = append(r.Skipped, e.clean(s))
	}
	slices.Sort(r.Skipped)
	r.Skipped = slices.Compact(r.Skipped)
	return r
}

// accounts has the accounts of deploy/nats, by service.
var accounts = map[string]string{
	"ENRICHER": contracts.ServiceEnricher, "IMPORTER": contracts.ServiceImporter, "NOTIFIER": contracts.ServiceNotifier,
}

// findTargets finds the accounts with the streams: the named account, the account of the service, or else the accounts of
// deploy/nats that answer under their prefix, and the user's own account for the other services.
func (e *examination) findTargets(ctx context.Context) {
	own := e.Assets.Services
	if len(own) == 0 {
		own = contracts.Services()
	}
	if slices.Contains(contracts.Services(), e.As) {
		own = []string{e.As}
	}
	switch {
	case e.As == userPublisher, e.As == userSys:
		return
	case e.Account == "" && e.operates():
		var stop bool
		if own, stop = e.findAccounts(ctx, own); stop {
			return
		}
	}
	if len(own) > 0 {
		e.target(e.Account, own)
	}
}

// findAccounts adds the accounts of services that answer, and returns the services that are left for the user's own account, or
// reports that this has no JetStream.
func (e *examination) findAccounts(ctx context.Context, own []string) (left []string, none bool) {
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	err := e.ask(ctx, "$JS.API.INFO", &answer)
	if err == nil && answer.Error != nil && errors.Is(answer.Error, jetstream.ErrJetStreamNotEnabledForAccount) {
		e.skipf("streams: the user's account has none: it is for monitoring")
		return nil, true
	}
	var found, lost []string
	var mu sync.Mutex
	var asking sync.WaitGroup
	for account, service := range accounts {
		if !slices.Contains(own, service) {
			continue
		}
		asking.Go(func() {
			_, err := e.request(ctx, "$JS."+account+".API.INFO", nil)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				lost = append(lost, account)
			} else {
				found = append(found, account)
			}
		})
	}
	asking.Wait()
	if len(found) == 0 && e.As != userAdmin {
		return own, false
	}
	for _, account := range lost {
		e.add("account.unreachable", Error, "account "+account, reload("the exports and imports of "+account+" are in accounts.conf"),
			"the user does not reach it: no answer to $JS.%s.API.INFO", account)
	}
	for _, account := range found {
		e.target(account, []string{accounts[account]})
	}
	return slices.DeleteFunc(slices.Clone(own), func(s string) bool { return s != contracts.ServiceLock }), false
}

func (e *examination) target(account string, services []string) {
	t := target{account: account, services: services}
	var err error
	if account == "" {
		t.js, err = jetstream.New(e.nc, jetstream.WithDefaultTimeout(once))
	} else {
		t.js, err = jetstream.NewWithAPIPrefix(e.nc, "$JS."+account+".API", jetstream.WithDefaultTimeout(once))
	}
	if err != nil { // an invalid name
		e.skipf("account %s: %v", account, err)
		return
	}
	e.targets = append(e.targets, t)
}

// request sends a request that is answered at once.
func (e *examination) request(ctx context.Context, subject string, data []byte) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, once)
	defer cancel()
	return e.nc.RequestWithContext(ctx, subject, data)
}

// ask sends a request to the JetStream API, and decodes the answer.
func (e *examination) ask(ctx context.Context, subject string, answer any) error {
	msg, err := e.request(ctx, subject, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(msg.Data, answer)
}

// command returns a command of this program that reaches a target.
func (e *examination) command(t target, args ...string) string {
	words := append([]string{"expediter"}, args...)
	if t.account != "" {
		words = append(words, "--account", t.account)
	}
	if e.Flags != "" {
		words = append(words, e.Flags)
	}
	return strings.Join(words, " ")
}

// nats returns a command of the program nats that reaches a target.
func (e *examination) nats(t target, command string) string {
	command = "nats " + command
	if t.account != "" {
		command += " --js-api-prefix '$JS." + t.account + ".API'"
	}
	if e.Flags != "" {
		command += " " + strings.NewReplacer("--ca ", "--tlsca ", "--cert ", "--tlscert ", "--key ", "--tlskey ").Replace(e.Flags)
	}
	return command
}

// apply returns the command that makes and mends the streams and consumers of services.
func (e *examination) apply(t target, more ...string) string {
	args := append([]string{"apply", "--services", strings.Join(t.services, ",")}, more...)
	if n := e.replicas(); n != 1 {
		args = append(args, "--replicas", strconv.Itoa(n))
	}
	if e.Assets.MaxBytes > 0 {
		args = append(args, "--max-bytes", strconv.FormatInt(e.Assets.MaxBytes, 10))
	}
	if len(e.Assets.Channels) > 0 {
		args = append(args, "--channels", strings.Join(e.Assets.Channels, ","))
	}
	return e.command(t, args...)
}

// replicas returns the number of servers that are to keep each stream.
func (e *examination) replicas() int {
	switch {
	case e.Assets.Replicas > 0:
		return e.Assets.Replicas
	case e.nc.ConnectedClusterName() != "":
		return 3 //nolint:mnd // as deploy/nats has them
	}
	return 1
}
