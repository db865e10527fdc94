package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/channels"
	"github.com/expediter-io/expediter/internal/operate/watch"
	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// dry reports differences and changes nothing.
var dry = provision.Options{DryRun: true, Wait: once}

// advisory has the settings whose differences do no harm.
var advisory = map[string]bool{"description": true, "max_bytes": true, "max_consumers": true, "metadata": true, "placement": true}

func (e *examination) options(t target) contracts.AssetOptions {
	options := e.Assets
	options.Replicas, options.Services = e.replicas(), t.services
	return options
}

// checkStreams compares all streams with their declarations, and checks their state.
func (e *examination) checkStreams(ctx context.Context) {
	var asking sync.WaitGroup
	for _, t := range e.targets {
		for _, want := range contracts.Assets(e.options(t)) {
			asking.Go(func() { e.checkStream(ctx, t, want) })
		}
	}
	asking.Wait()
}

func (e *examination) checkStream(ctx context.Context, t target, want jetstream.StreamConfig) {
	of, begun := streamOf(t, want.Name), time.Now()
	_, err := e.stream(t, want.Name)
	var changes []provision.Change
	if err == nil || errors.Is(err, jetstream.ErrStreamNotFound) {
		changes, err = provision.Apply(ctx, t.js, []jetstream.StreamConfig{want}, dry)
	}
	if err != nil {
		e.unanswered(ctx, t, of, "$JS.API.STREAM.INFO."+want.Name, err)
		return
	}
	for _, d := range changes[0].Differences {
		e.differs(t, of, changes[0], d)
	}
	ctx, cancel := context.WithTimeout(ctx, once)
	defer cancel()
	asked := time.Now()
	stream, err := t.js.Stream(ctx, want.Name)
	if err != nil {
		return
	}
	e.checkClock("the leader of "+of, stream.CachedInfo().TimeStamp, asked, time.Now())
	// At any time a replica may be behind for a moment, or a stream may be electing its leader.
	for ctx.Err() == nil && time.Since(begun) < once && isUnsettled(stream.CachedInfo()) {
		retry.Sleep(ctx, stall)
		if _, err := stream.Info(ctx); err != nil {
			break // the former answer counts
		}
	}
	e.checkState(t, of, *stream.CachedInfo())
}

func isUnsettled(info *jetstream.StreamInfo) bool {
	behind := func(p *jetstream.PeerInfo) bool { return !p.Current && !p.Offline }
	c := info.Cluster
	return c != nil && (c.Leader == "" || missing(info) > 0 || slices.ContainsFunc(c.Replicas, behind))
}

// missing returns the number of replicas that a stream lacks. While a stream gets more replicas, it has only its leader
// until the replicas have joined. Until then its messages are lost when that server stops.
func missing(info *jetstream.StreamInfo) int {
	return info.Config.Replicas - 1 - len(info.Cluster.Replicas)
}

func streamOf(t target, name string) string { return "stream " + name + t.suffix() }

// unanswered adds the finding of a request without an answer: the request was denied, or has no receiver.
func (e *examination) unanswered(ctx context.Context, t target, of, subject string, err error) {
	e.mu.Lock()
	denied := strings.Join(e.denied, " ")
	e.mu.Unlock()
	switch name := subject[strings.LastIndexByte(subject, '.')+1:]; {
	case strings.Contains(denied, "_INBOX"):
		e.add("permission.subscribe", Error, "user "+cmp.Or(e.As, "of the connection"),
			reload("the user may subscribe to its inbox, and --as names it"), "it gets no answers: it may not subscribe to them")
	case strings.Contains(denied, name):
		e.add("permission.publish", Error, of, reload(fmt.Sprintf("%q is among the permissions of the user in accounts.conf", subject)),
			"the user may not ask about it")
	case ctx.Err() != nil:
		e.skipf("%s: %v", of, ctx.Err())
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount), errors.Is(err, jetstream.ErrJetStreamNotEnabled),
		errors.Is(err, nats.ErrNoResponders):
		e.addBecause(most, "account.jetstream", Error, t.name(),
			restart("its configuration has JetStream for the account and its disk has room, unless --account or --as has to name another account"),
			"nothing in it answers requests about streams: it has none, as that of publisher, or the servers turned JetStream off on full disks")
	default:
		reason := fmt.Sprintf("within %s", once)
		if api, ok := errors.AsType[*jetstream.APIError](err); ok {
			reason = "but " + api.Description
		}
		e.addBecause(anyOfThem, "stream.leader", Error, of, leaders,
			"no answer about it %s: most of its servers are away, have full disks, or elect its leader", reason)
	}
}

const leaders = "nats server report jetstream # start the servers that are away, and make room on full disks"

// differs adds the finding of a setting that differs from its declaration. A limit that is larger than declared is an
// operator's choice.
func (e *examination) differs(t target, of string, c provision.Change, d provision.Difference) {
	kind, remove, cure := "stream", e.nats(t, "stream rm -f "+c.Stream), e.apply(t)
	if c.Consumer != "" {
		kind, remove = "consumer", e.nats(t, "consumer rm -f "+c.Stream+" "+c.Consumer)
	}
	if d.Field == "ack_wait" {
		cure = e.apply(t, "--ack-wait", d.Want)
	}
	severity := Error
	if advisory[d.Field] {
		severity = Warning
	}
	switch {
	case d.Missing:
		e.add(kind+".missing", Error, of, cure, "it is missing")
		return
	case d.Fixed:
	case d.Shrinks && d.Field != "retention":
		return
	case kind == "stream":
		cure = fmt.Sprintf("%s && %s && %s # its messages are in doctor-%s only, then", e.nats(t, "stream backup "+c.Stream+" doctor-"+c.Stream),
			remove, cure, c.Stream)
	default:
		cure = remove + " && " + cure
	}
	e.add(kind+"."+d.Field, severity, of, cure, "%s is %s, want %s", d.Field, orUnset(d.Got), orUnset(d.Want))
}

func orUnset(s string) string {
	if s == "" {
		return "unset"
	}
	return s
}

// replicaSilent is the longest time without an answer of a node to the leader, which asks every second. The server reports a node as
// offline at once when the node announces its stop, and otherwise after two and a half minutes.
const replicaSilent = 10 * time.Second

func (e *examination) checkState(t target, of string, info jetstream.StreamInfo) {
	name := info.Config.Name
	if c := info.Cluster; c != nil {
		if c.Leader == "" {
			e.addBecause(anyOfThem, "stream.leader", Error, of, leaders, "it has no leader")
			return // only the leader knows the others
		}
		const report = "nats server report jetstream # "
		if n := missing(&info); n > 0 {
			e.add("replica.behind", Warning, of, report+"wait", "%d of its %d replicas did not join it", n, info.Config.Replicas)
		}
		for _, peer := range c.Replicas {
			start := report + "start " + peer.Name + ": its log says why it is away, such as a full disk"
			switch {
			case peer.Offline:
				e.addBecause(peer.Name, "replica.offline", Error, of, start, "its replica on %s is offline", peer.Name)
			case peer.Active > replicaSilent:
				e.addBecause(peer.Name, "replica.offline", Error, of, start, "its replica on %s was silent for more than %s", peer.Name, replicaSilent)
			case !peer.Current:
				e.addBecause(peer.Name, "replica.behind", Warning, of, report+"wait", "its replica on %s is behind", peer.Name)
			}
		}
	}
	if !watch.MayHaveJobs(name) { // the others are looked at with their jobs
		for _, p := range (watch.State{Account: t.account, Info: &info}).Full() {
			e.addProblem(t, name, p)
		}
	}
}

func part(used uint64, bound int64) float64 {
	if bound <= 0 {
		return 0
	}
	return float64(used) / float64(bound)
}

// checkConsumers compares all consumers with their declarations.
func (e *examination) checkConsumers(ctx context.Context) {
	var asking sync.WaitGroup
	for _, t := range e.targets {
		for _, service := range t.services {
			options := e.options(t)
			options.Services = []string{service}
			options.AckWait = e.ackWait(service)
			for _, want := range provision.Consumers(options) {
				asking.Go(func() { e.checkConsumer(ctx, t, want) })
			}
		}
	}
	asking.Wait()
}

// ackWait returns the AckWait that a service sets on its consumers, 0 when it is not known.
func (e *examination) ackWait(service string) time.Duration {
	d, err := time.ParseDuration(e.Environment[strings.ToUpper(service)+"_ACK_WAIT"])
	if err != nil {
		return e.Assets.AckWait
	}
	return d
}

func (e *examination) checkConsumer(ctx context.Context, t target, want provision.Consumer) {
	name := want.Config.Durable
	of := "consumer " + want.Stream + "/" + name + t.suffix()
	if _, err := e.stream(t, want.Stream); err != nil {
		return // is reported, and apply makes both
	}
	changes, err := provision.ApplyConsumers(ctx, t.js, []provision.Consumer{want}, dry)
	if err != nil {
		e.unanswered(ctx, t, of, "$JS.API.CONSUMER.INFO."+want.Stream+"."+name, err)
		return
	}
	if changes[0].Action == provision.Create && e.isUnused(t, want) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.unused = append(e.unused, of)
		return
	}
	for _, d := range changes[0].Differences {
		e.differs(t, of, changes[0], d)
	}
}

// isUnused reports whether a consumer belongs to a channel that no notifier uses, as far as is known. With
// NOTIFIER_CREATE_ASSETS notifiers make consumers only for their channels.
func (e *examination) isUnused(t target, c provision.Consumer) bool {
	channel, _ := strings.CutPrefix(c.Config.Durable, "notifier-send-")
	variable := channels.Named(channel).Variable
	return variable != "" && e.Environment[variable]+e.Environment[variable+"_FILE"] == "" && !pulled(t.workers(), c)
}

// missing returns the number of declared streams of a target that are missing.
func (e *examination) missing(t target) (n int) {
	for _, want := range contracts.Assets(e.options(t)) {
		if _, err := e.stream(t, want.Name); errors.Is(err, jetstream.ErrStreamNotFound) {
			n++
		}
	}
	return n
}

func (e *examination) checkAccounts(ctx context.Context) {
	if !e.operates() {
		return // services may not ask
	}
	var asking sync.WaitGroup
	for _, t := range e.targets {
		asking.Go(func() { e.checkAccount(ctx, t) })
	}
	asking.Wait()
}

func (e *examination) checkAccount(ctx context.Context, t target) {
	ctx, cancel := context.WithTimeout(ctx, once)
	defer cancel()
	of := t.name()
	info, err := t.js.AccountInfo(ctx)
	if err != nil {
		return // the streams have this finding
	}
	missing, limits := e.missing(t), info.Limits
	if limits.MaxStreams > 0 && info.Streams+missing > limits.MaxStreams {
		e.add("account.streams", Error, of, reload(fmt.Sprintf("max_streams of it is %d in accounts.conf", info.Streams+missing)),
			"it has %d of %d streams, and %d of those that are declared are missing", info.Streams, limits.MaxStreams, missing)
	}
	if used := part(info.Store, limits.MaxStore); used >= fullNoted {
		e.add("account.store", Error, of, reload("max_file of it is larger in accounts.conf"), "%.0f %% of its storage are used", 100*used)
	}
}
