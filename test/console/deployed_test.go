package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

// deployed is a site whose console has the permissions for each page and action.
type deployed struct{ *consoletest.Site }

// Every page and action works as the NATS user console, and needs all that its account imports.
func TestItNeedsNoMoreThanItIsPermitted(t *testing.T) {
	t.Parallel()
	site, may := consoletest.Deployed(t, "console")
	s := deployed{site}
	for account, stream := range map[string]string{"ENRICHER": contracts.StreamEnrichJobs, "IMPORTER": contracts.StreamImportJobs} {
		s.cancel(account, stream)
	}
	s.Business()
	page := s.Get("/", http.StatusOK)
	check.That(t, !strings.Contains(page, "do not answer") && strings.Contains(page, "own account"), "the overview: %s", page)
	for account := range map[string]bool{"ENRICHER": true, "IMPORTER": true, "NOTIFIER": true} {
		s.deadLetters(account)
	}
	s.pause()
	s.services()
	s.locks()
	s.strand("NOTIFIER", contracts.StreamEvents)
	s.strand("NOTIFIER", contracts.StreamNotifications)
	check.OK(t, check.Err(s.Conn.RequestWithContext(t.Context(), "audit.cli.users.test", []byte("{}"))))
	for _, path := range []string{"/jobs", "/schedules", "/keys/limits", "/keys/limits?account=ENRICHER", "/workers", "/audit", "/audit?users=1"} {
		s.Get(path, http.StatusOK)
	}
	events := natstest.InAccount(t, s.Conn, "NOTIFIER")
	for range 25 {
		check.OK(t, check.Err(events.Publish(t.Context(), "events.USER.none", []byte("{}"))))
	}
	s.Get("/jobs/EVENTS?account=NOTIFIER", http.StatusOK) // in time only if many events come as one answer
	may.CheckImports(t, "CONSOLE",                        // doctor
		"$JS.ENRICHER.API.CONSUMER.INFO.*.*", "$JS.IMPORTER.API.CONSUMER.INFO.*.*", "$JS.NOTIFIER.API.CONSUMER.INFO.*.*")
}

// deadLetters replays a dead letter, discards another, and looks at a third.
func (s deployed) deadLetters(account string) {
	s.Helper()
	s.JetStream = natstest.InAccount(s.T, s.Conn, account)
	for stream, subject := range map[string]string{
		contracts.StreamEnrichJobs: "jobs.enrich.none.%d", contracts.StreamImportJobs: "jobs.import.none.%d",
		contracts.StreamEvents: "events.X.%d", contracts.StreamNotifications: "notify.send.none.x.y.%d",
	} {
		if strings.HasPrefix(stream, account[:5]) || account == "NOTIFIER" && !strings.HasSuffix(stream, "_JOBS") {
			for n := range 3 {
				seq := s.PutDeadLetters(consoletest.DeadLetter(n, func(l *worker.DeadLetter) { l.Stream, l.Subject = stream, fmt.Sprintf(subject, n) }))
				form := url.Values{"account": {account}, "seq": {fmt.Sprint(seq)}}
				s.Get("/dead/one?"+form.Encode(), http.StatusOK)
				form.Set("typed", "1")
				if n < 2 {
					s.Post("/dead/one/"+[]string{"replay", "discard"}[n], form, http.StatusSeeOther)
				}
			}
		}
	}
	s.Get("/dead?account="+account, http.StatusOK)
}

// cancel cancels jobs: one that a worker was given, and one that waits.
func (s deployed) cancel(account, stream string) {
	s.Helper()
	js, path := natstest.InAccount(s.T, s.Conn, account), "/jobs/"+stream
	form := url.Values{"account": {account}, "typed": {"2"}}
	for range 2 {
		ack, err := js.Publish(s.Context(), "jobs."+strings.TrimSuffix(strings.ToLower(stream), "_jobs")+".normal.x"+fmt.Sprint(len(form["job"])), nil)
		check.OK(s.T, err)
		form.Add("job", fmt.Sprint(ack.Sequence))
	}
	consumer := check.Must(js.Consumer(s.Context(), stream, strings.ToLower(account)))(s.T)
	check.OK(s.T, check.Err(consumer.Next()))
	s.Get(path+"?account="+account, http.StatusOK)
	s.Get(path+"/1?account="+account, http.StatusOK)
	s.Post(path+"/cancel", form, http.StatusSeeOther)
	s.JetStream = js
	check.Equal(s.T, s.Messages(stream), 0, "jobs left")
}

// strand has a consumer give up a message of a stream, and shows it.
func (s deployed) strand(account, stream string) {
	s.Helper()
	js := natstest.InAccount(s.T, s.Conn, account)
	gone, err := js.CreateConsumer(s.Context(), contracts.StreamDead, jetstream.ConsumerConfig{
		FilterSubject: "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES." + stream + ".>",
	})
	check.OK(s.T, err)
	// No acknowledgement, of whatever kind, crosses the border of the account: the consumer waits for it in vain.
	consumer, err := js.CreateConsumer(s.Context(), stream, jetstream.ConsumerConfig{AckWait: 100 * time.Millisecond, MaxDeliver: 1})
	check.OK(s.T, err)
	check.OK(s.T, check.Err(consumer.Next()))
	for left := true; left; { // an advisory needs a pull that waits
		check.OK(s.T, check.Err(consumer.Fetch(1, jetstream.FetchMaxWait(time.Second))))
		advisory, err := gone.Next(jetstream.FetchMaxWait(time.Second))
		if left = err != nil; !left {
			meta := check.Must(advisory.Metadata())(s.T)
			s.Get(fmt.Sprintf("/dead/one?account=%s&seq=%d", account, meta.Sequence.Stream), http.StatusOK)
		}
	}
}

// pause pauses handlers, and drains workers.
func (s deployed) pause() {
	s.Helper()
	for _, account := range []string{"ENRICHER", "IMPORTER", "NOTIFIER"} {
		for _, w := range check.Must(inspect.Workers(s.Context(), natstest.InAccount(s.T, s.Conn, account)))(s.T) {
			s.Get("/workers/"+w.Instance+"?account="+account, http.StatusOK)
			form := url.Values{"account": {account}, "stream": {w.Stream}, "pattern": {w.Handlers[0].Pattern}, "minutes": {"5"}}
			s.Post("/workers/pause", form, http.StatusSeeOther)
			s.Post("/workers/resume", form, http.StatusSeeOther)
			for _, verb := range []string{"/drain", "/resume"} {
				s.Post("/workers/"+w.Instance+verb+"?account="+account, url.Values{}, http.StatusSeeOther)
			}
		}
	}
}

// services asks the services.
func (s deployed) services() {
	s.Helper()
	s.Get("/places?id="+url.QueryEscape(consoletest.PlaceID), http.StatusOK)
	s.Get("/imports?id=job-1", http.StatusOK)
	s.Post("/imports/cancel", url.Values{"id": {"job-1"}}, http.StatusConflict)
	s.Post("/imports/retry", url.Values{"id": {"job-2"}}, http.StatusSeeOther)
	s.Get("/notifications?event=evt-2", http.StatusOK)
	s.Post("/notifications/cancel", url.Values{"event": {"evt-2"}}, http.StatusSeeOther)
	s.Post("/notifications/replay", url.Values{"event": {"evt-2"}}, http.StatusSeeOther)
}

// locks steals a lock of operators.
func (s deployed) locks() {
	s.Helper()
	own := check.Must(jetstream.New(s.Conn))(s.T)
	locks := check.Must(kvlock.NewLocker(s.Context(), own, kvlock.LockerConfig{Bucket: contracts.BucketLocks}))(s.T)
	defer locks.Close()
	lease := check.Must(locks.Acquire(s.Context(), "nightly", kvlock.AcquireOptions{}))(s.T)
	check.Contains(s.T, s.Get("/keys", http.StatusOK), "nightly")
	s.Post("/keys/steal", url.Values{
		"bucket": {contracts.BucketLocks}, "name": {"nightly"}, "token": {lease.Token().String()}, "typed": {"nightly"}, "account": {""},
	}, http.StatusSeeOther)
}
