package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	deploy "github.com/expediter-io/expediter/deploy/nats"
	"github.com/expediter-io/expediter/internal/denied"
	"github.com/expediter-io/expediter/internal/lazyregexp"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// Users of deploy/nats other than the services.
const (
	userAdmin     = "admin"
	userConsole   = "console"
	userPublisher = "publisher"
	userSys       = "sys"
)

// accountOf has the accounts of the users whose only permissions are the imports of their account.
var accountOf = map[string]string{userAdmin: "OPERATOR", userConsole: "CONSOLE", userPublisher: "PUBLISHER", userSys: "MONITOR"}

// Users are the users of deploy/nats.
func Users() []string {
	return []string{
		userAdmin, userConsole, contracts.ServiceEnricher, contracts.ServiceImporter, contracts.ServiceNotifier, userPublisher, userSys,
	}
}

// operates reports whether the user is known to reach the accounts of all services.
func (e *examination) operates() bool { return e.As == "" || e.As == userAdmin || e.As == userConsole }

var (
	grantLine  = lazyregexp.New(`^\s*"([^"]+)"`)
	grantList  = lazyregexp.New(`^\s*(publish|subscribe): \[`)
	importLine = lazyregexp.New(`\{ service: \{ account: (\w+), subject: "([^"]+)" \}(?:, to: "([^"]+)")? \}`)
)

// grants returns the subjects that accounts.conf permits a service to publish and subscribe to.
func grants(accounts, user string) map[string][]string {
	_, text, _ := strings.Cut(accounts, "nkey: $NATS_NKEY_"+strings.ToUpper(user)+", permissions: {")
	text, _, _ = strings.Cut(text, "allow_responses")
	all, kind := map[string][]string{}, ""
	for line := range strings.Lines(text) {
		if m := grantList.FindStringSubmatch(line); m != nil {
			kind = m[1]
		} else if m := grantLine.FindStringSubmatch(line); m != nil {
			all[kind] = append(all[kind], m[1])
		}
	}
	return all
}

// probe returns a subject under a pattern that no program uses.
func probe(pattern string) string {
	if rest, ok := strings.CutSuffix(pattern, ">"); ok {
		pattern = rest + "doctor.probe"
	}
	return strings.ReplaceAll(pattern, "*", "doctor")
}

// harmless returns a message that no stream stores, because it expects a stream that does not exist, and to which no server
// answers. On the subject of an acknowledgement it is the heartbeat of a job that does not exist.
func harmless(subject string) *nats.Msg {
	msg := nats.NewMsg(subject)
	msg.Header.Set(nats.ExpectedStreamHdr, "DOCTOR")
	if strings.HasPrefix(subject, "$JS.ACK.") {
		msg.Header, msg.Data = nil, []byte("+WPI")
	}
	return msg
}

// checkPermissions probes the permissions that accounts.conf gives the user.
func (e *examination) checkPermissions(ctx context.Context) {
	text, err := deploy.Text("accounts.conf")
	if err != nil {
		e.skipf("permissions: %v", err)
		return
	}
	if slices.Contains(contracts.Services(), e.As) {
		e.tryGrants(ctx, grants(text, e.As))
		return
	}
	user := e.As
	if user == "" && len(e.targets) > 1 {
		user = userAdmin
	}
	_, block, _ := strings.Cut(text, "\n  "+accountOf[user]+" {")
	block, _, _ = strings.Cut(block, "\n  }")
	if user != "" {
		e.tryImports(ctx, user, importLine.FindAllStringSubmatch(block, -1))
	}
}

// tryGrants publishes and subscribes on a separate connection. The server answers only denied operations, before the pong.
func (e *examination) tryGrants(ctx context.Context, all map[string][]string) {
	var mu sync.Mutex
	refused := map[string]bool{}
	closed := make(chan struct{})
	nc, err := e.Connect(nats.NoReconnect(), nats.Timeout(once), nats.CustomInboxPrefix("_INBOX_"+e.As),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }), // after the last error
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if subject, _, ok := denied.Subject(err); ok {
				mu.Lock()
				defer mu.Unlock()
				refused[subject] = true
			}
		}))
	if err != nil {
		e.skipf("permissions: connect: %v", err)
		return
	}
	for _, pattern := range all["publish"] {
		err = errors.Join(err, nc.PublishMsg(harmless(probe(pattern))))
	}
	for _, pattern := range all["subscribe"] {
		_, failed := nc.SubscribeSync(probe(pattern))
		err = errors.Join(err, failed)
	}
	err = errors.Join(err, nc.FlushWithContext(ctx))
	nc.Close()
	<-closed
	if err != nil {
		e.skipf("permissions: %v", err)
	}
	for _, kind := range []string{"publish", "subscribe"} {
		for _, pattern := range all[kind] {
			if refused[probe(pattern)] {
				e.add("permission."+kind, Error, "user "+e.As, reload(fmt.Sprintf("%q is in the list %s of %s in accounts.conf", pattern, kind, e.As)),
					"it may not %s to %s", kind, pattern)
			}
		}
	}
}

// tryImports sends a request to each import of the user's account. Any answer, even an error, is enough. For missing streams
// there is no answer; that is another finding.
func (e *examination) tryImports(ctx context.Context, user string, lines [][]string) {
	whole := map[string]bool{}
	for _, t := range e.targets {
		whole[t.account] = e.missing(t) == 0
	}
	var asking sync.WaitGroup
	var mu sync.Mutex // guards lost
	lost := map[string][]string{}
	for _, line := range lines {
		account, pattern, to := line[1], line[2], line[3]
		switch {
		case strings.Contains(pattern, ".v1."), strings.HasPrefix(pattern, "$SRV."),
			strings.Contains(pattern, ".PURGE."), strings.Contains(pattern, ".MSG.DELETE."): // they remove data
			continue // only services answer
		case account != "SYS" && user != userPublisher && !slices.ContainsFunc(e.targets, func(t target) bool { return t.account == account }):
			continue // is reported
		case to == "":
			to = pattern
		}
		asking.Go(func() {
			subject := probe(strings.NewReplacer("API.STREAM.>", "API.STREAM.NAMES", "API.CONSUMER.>", "API.CONSUMER.NAMES.DEAD",
				"DIRECT.>", "DIRECT.GET.DEAD", "$KV.>", "$KV.jobs.doctor", "notify.>", "notify.plan.doctor").Replace(to))
			once, cancel := context.WithTimeout(ctx, once)
			defer cancel()
			_, err := e.nc.RequestMsgWithContext(once, harmless(subject))
			if isUnheard(ctx, err, user, account == "SYS" || whole[account]) {
				mu.Lock()
				defer mu.Unlock()
				lost[account] = append(lost[account], pattern)
			}
		})
	}
	asking.Wait()
	for account, patterns := range lost {
		slices.Sort(patterns)
		e.add("permission.import", Error, "account "+accountOf[user],
			reload("its imports of "+account+" are in accounts.conf, the streams are there, and the disks of the servers have room"),
			"nothing answers there to %s of %s", strings.Join(patterns, ", "), account)
	}
}

// isUnheard reports whether the error of a request to an import shows that nothing answers there. others says that nothing else explains
// it.
func isUnheard(ctx context.Context, err error, user string, others bool) bool {
	if user == userPublisher && errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return true // servers that lose JetStream take a moment to say so, and a publisher has no other question that would show it
	}
	return errors.Is(err, nats.ErrNoResponders) && (user == userPublisher || others)
}
