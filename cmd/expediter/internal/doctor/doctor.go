// Package doctor examines a deployment and reports its problems, each with the shell command that fixes it.
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

	"github.com/expediter-io/expediter/internal/console"
	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/operate/watch"
	"github.com/expediter-io/expediter/pkg/contracts"
)

const (
	// Error means that a part of the deployment does not work, or will not work when it is needed.
	Error = console.Error

	// Warning means that an operator should look at the finding.
	Warning = console.Warning

	// unknown is the severity of what could not be looked at: it is skipped unless a broken server is the reason.
	unknown console.Severity = ""
)

// Finding is one problem of the deployment. Its cure is a line for a shell; one that needs an edit first says so in a
// comment.
type Finding = console.Finding

// Report is the result of an examination.
type Report struct {
	Findings []Finding `json:"findings"` // sorted by severity, thing and id
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
	Connect     func(...nats.Option) (*nats.Conn, error)
	Environment map[string]string // the variables of the services
	Flags       string            // the flags with which commands of cures reach the same server, such as "--server nats://n1:4222"
	Monitors    []string          // the addresses of servers' HTTP monitoring, such as http://127.0.0.1:8222; defaults to none
	// ReadOnly writes no record to the buckets. Defaults to false.
	ReadOnly bool
	Server   string // the address of the server
	// Timeout bounds the examination. Defaults to 30 seconds.
	Timeout time.Duration
}

type examination struct {
	Config

	ctx     context.Context // of the checks
	nc      *nats.Conn      // nil where there is no connection
	targets []target
	secrets []string

	streams sync.Map // the answers about streams, by account and name

	mu       sync.Mutex                  // guards the fields below
	here     map[string]watch.Connection // of workers in the user's own account, nil if it is not known
	broken   []string                    // servers that cannot write
	off      int                         // servers that say so
	checked  int                         // servers that told their health
	findings []found
	skipped  []string
	unused   []string // missing consumers of channels by which no notifier is known to send
	denied   []string // subjects of the connection's permission violations
}

// found is a finding, and the server that is its cause if it is broken: its name, anyOfThem, most, or "" for none.
type found struct {
	Finding

	because string
}

// most stands for most of the servers: without them no stream has a leader. With any of them goes the leader of some streams, and it takes
// a busy cluster seconds to elect others.
const (
	most      = "*"
	anyOfThem = "?"
)

// target is an account with the services whose streams are in it.
type target struct {
	account  string // "" for the user's own
	js       jetstream.JetStream
	services []string
	workers  func() []inspect.Info // asks once
}

// prefix returns what precedes the subjects of an account's buckets and services in the user's own.
func (t target) prefix() string {
	if t.account == "" {
		return ""
	}
	return "$JS." + t.account + ".API."
}

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

var checks = []struct {
	name  string
	needs need
	run   func(*examination, context.Context)
}{
	{"connection", connection, (*examination).checkConnection},
	{"servers", nothing, (*examination).checkServers},
	{"streams", targets, (*examination).checkStreams},
	{"consumers", targets, (*examination).checkConsumers},
	{"accounts", targets, (*examination).checkAccounts},
	{"permissions", targets, (*examination).checkPermissions},
	{"writes", targets, (*examination).checkWrites},
	{"services", targets, (*examination).checkServices},
	{"work", targets, (*examination).checkWork},
	{"environment", nothing, (*examination).checkEnvironment},
	{"remote services", nothing, (*examination).checkRemotes},
}

// need is what a check needs, with all before it.
type need int

const (
	nothing need = iota
	connection
	targets // the accounts are found
)

const (
	defaultTimeout = 30 * time.Second

	// reserve is the divisor of the timeout: one part is for the connection, and the rest for the checks.
	reserve = 3

	// once bounds a single request.
	once = 4 * time.Second

	maxNamed = 3 // things of one finding
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
	connected := e.connect(first)
	bounded, stop := context.WithTimeout(ctx, cfg.Timeout*(reserve-1)/reserve)
	defer stop()
	e.ctx = bounded
	var running sync.WaitGroup
	found := make(chan struct{})
	if connected {
		defer e.nc.Close()
		running.Go(func() { defer close(found); e.findTargets(bounded) })
	}
	for _, c := range checks {
		if c.needs > nothing && e.nc == nil {
			continue
		}
		running.Go(func() {
			if c.needs == targets {
				<-found
			}
			e.bounded(bounded, c.name, c.run)
		})
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
	e.addBecause("", id, severity, of, cure, problem, args...)
}

// addBecause adds a finding that says nothing new if a server is broken, or most are.
func (e *examination) addBecause(server, id string, severity console.Severity, of, cure, problem string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.findings = append(e.findings, found{Finding{
		ID: id, Severity: severity, Of: of, Problem: fmt.Sprintf(problem, args...), Cure: strings.TrimSpace(cure),
	}, server})
}

func (e *examination) skipf(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.skipped = append(e.skipped, fmt.Sprintf(format, args...))
}

// report returns the findings so far, without secrets and without repetitions. What follows from a server that is broken is named with
// that server.
func (e *examination) report() Report {
	e.mu.Lock()
	defer e.mu.Unlock()
	servers := e.checked
	if servers == 0 && e.nc != nil { // the user may not ask for their health
		servers = e.replicas()
	}
	var causes []Finding
	follows := map[string][]Finding{} // by what they follow from
	for _, f := range e.findings {
		f.Of, f.Problem, f.Cure = e.clean(f.Of), e.clean(f.Problem), e.clean(f.Cure)
		switch because := f.because; {
		case slices.Contains(e.broken, because):
			follows[because] = append(follows[because], f.Finding)
		case because == anyOfThem && e.off > 0, because == most && 2*len(e.broken) > servers:
			follows[most] = append(follows[most], f.Finding)
		case f.Severity == unknown:
			e.skipped = append(e.skipped, f.Of+": "+f.Problem)
		default:
			causes = append(causes, f.Finding)
		}
	}
	r := Report{Findings: fold(causes)}
	for i := range r.Findings {
		if f := &r.Findings[i]; f.ID == idDisk {
			name := strings.TrimPrefix(f.Of, "server ")
			if name == slices.Min(e.broken) { // one of them says so for all
				follows[name] = append(follows[name], follows[most]...)
			}
			for _, other := range fold(follows[name]) {
				f.Problem += fmt.Sprintf("; so %s: %s [%s]", other.Of, other.Problem, other.ID)
			}
		}
	}
	slices.SortFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Of, b.Of), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Problem, b.Problem))
	})
	slices.Sort(e.unused)
	if len(e.unused) > 0 {
		e.skipped = append(e.skipped, strings.Join(e.unused, ", ")+": missing, and no notifier that is known sends by their channels")
	}
	for _, s := range e.skipped {
		r.Skipped = append(r.Skipped, e.clean(s))
	}
	slices.Sort(r.Skipped)
	r.Skipped = slices.Compact(r.Skipped)
	return r
}

// fold makes one finding of those that differ only in their stream, consumer, account or worker.
func fold(all []Finding) []Finding {
	folded, things, at := []Finding{}, [][]string{}, map[Finding]int{}
	for _, f := range all {
		kind := f
		switch thing, _, _ := strings.Cut(f.Of, " "); thing {
		case "account", "consumer", "stream", "worker":
			kind.Of = ""
		}
		i, again := at[kind]
		if !again {
			i = len(folded)
			at[kind], folded, things = i, append(folded, f), append(things, nil)
		}
		things[i] = append(things[i], f.Of)
	}
	for i, names := range things {
		slices.Sort(names)
		names = slices.Compact(names)
		if folded[i].Of = strings.Join(names, ", "); len(names) > maxNamed {
			folded[i].Of = fmt.Sprintf("%s and %d others", names[0], len(names)-1)
		}
	}
	return folded
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
// reports that this has no JetStream, or does not answer.
func (e *examination) findAccounts(ctx context.Context, own []string) (left []string, none bool) {
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
	const info = "$JS.API.INFO"
	err := jsapi.Client{Prefix: "$JS.API.", Sender: jsapi.Over(e.nc), Within: once}.Ask(ctx, "INFO", nil, nil)
	asking.Wait()
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		e.skipf("streams: the user's account has none: it is for monitoring")
		return nil, true
	case isType[*json.SyntaxError](err):
		err = jetstream.ErrJetStreamNotEnabledForAccount // the account has something else there, as that of publisher
	}
	if len(found) == 0 && e.As != userAdmin {
		lost = nil // the server has no such accounts
	}
	for _, account := range lost {
		e.addBecause(most, "account.unreachable", Error, "account "+account, reload("its exports and imports are in accounts.conf"),
			"the user does not reach it: no answer to $JS.<account>.API.INFO")
	}
	for _, account := range found {
		e.target(account, []string{accounts[account]})
	}
	if t := (target{}); err != nil && !e.isDenied(info) {
		e.unanswered(ctx, t, t.name(), info, err)
		return nil, true
	}
	if len(found) == 0 && e.As != userAdmin {
		return own, false
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
	t.workers = sync.OnceValue(func() []inspect.Info { return e.findWorkers(t) })
	e.targets = append(e.targets, t)
}

// answer is the answer about a stream, when done is closed.
type answer struct {
	done chan struct{}
	info *jetstream.StreamInfo
	err  error
}

// stream asks for a stream, once for all checks: one that does not answer costs them one timeout.
func (e *examination) stream(t target, name string) (*jetstream.StreamInfo, error) {
	known, asked := e.streams.LoadOrStore(t.account+" "+name, &answer{done: make(chan struct{})})
	a := known.(*answer) //nolint:forcetypeassert // of this function
	if asked {
		<-a.done
		return a.info, a.err
	}
	defer close(a.done)
	a.err = jsapi.Retry(e.ctx, once, func(ctx context.Context) error {
		stream, err := t.js.Stream(ctx, name)
		if err == nil {
			a.info = stream.CachedInfo()
		}
		return err
	})
	return a.info, a.err
}

// request sends a request that is answered at once.
func (e *examination) request(ctx context.Context, subject string, data []byte) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, once)
	defer cancel()
	return e.nc.RequestWithContext(ctx, subject, data)
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

// apply returns the command that makes and fixes the streams and consumers of services.
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
		return 3
	}
	return 1
}
