package consoletest

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/enricher"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// rules notify the staff of a restaurant.
const rules = "version: 1\nevents:\n  TABLE: {STAFF: {channels: [inapp], category: tables}}\n"

// captions are the captions of a video.
const captions = "WEBVTT\n\n00:01.000 --> 00:05.000\nמתכון: Pancakes.\n\n00:05.000 --> 00:11.000\nMix 2 cups of flour " +
	"with 1 teaspoon of salt.\n\n" +
	"00:11.000 --> 00:18.000\nAdd 3 eggs and whisk until smooth.\n\n00:18.000 --> 00:25.000\nFry in a hot pan for 2 minutes.\n"

const (
	// PlaceID is a place with a result.
	PlaceID = "place 1/ü"

	// Hebrew is a user whose name is written from right to left.
	Hebrew = "דנה"
)

// venue is the only place of a provider.
type venue struct{}

func (venue) Name() string { return contracts.ProviderWolt }

func (venue) Search(context.Context, match.Place) ([]provider.Venue, error) {
	return []provider.Venue{{
		ID: "v1", Place: match.Place{Name: "פיצה הצוק", Address: "דיזנגוף 142", City: "תל אביב", Phone: "03-000-0101"},
		URL: "https://wolt.example/v1",
	}}, nil
}

// Business starts the services for a console. They have an event "evt 1" that was sent, an event "evt-2" that is sent tomorrow, an
// import "job-1" with a recipe, an import "job-2" that failed, and PlaceID.
func (s *Site) Business() {
	s.Helper()
	base := service.BaseConfig{CreateAssets: s.users == nil, Listen: "-", Logger: slog.New(slog.DiscardHandler)}
	n := started(s, contracts.ServiceNotifier, func(ctx context.Context, nc *nats.Conn) (*notifier.Notifier, error) {
		path := filepath.Join(s.TempDir(), "rules.yaml")
		check.OK(s.T, os.WriteFile(path, []byte(rules), 0o600))
		return notifier.Start(ctx, nc, notifier.Config{BaseConfig: base, Rules: path})
	})
	i := started(s, contracts.ServiceImporter, func(ctx context.Context, nc *nats.Conn) (*importer.Importer, error) {
		return importer.Start(ctx, nc, importer.Config{
			BaseConfig: base, AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, TempDir: s.TempDir(),
		})
	})
	e := started(s, contracts.ServiceEnricher, func(ctx context.Context, nc *nats.Conn) (*enricher.Enricher, error) {
		return enricher.Start(ctx, nc, enricher.Config{BaseConfig: base, Enabled: true, Providers: []provider.Provider{venue{}}})
	})
	for _, id := range []string{"ada", "ben", Hebrew} {
		r := contracts.Recipient{RecipientType: "STAFF", UserID: id}
		if id == "ben" {
			r.OptOut = map[string][]string{"tables": {"*"}}
		}
		check.OK(s.T, n.Directory.Put(s.Context(), r, recipient.Member{Type: "RESTAURANT", ID: "5"}))
	}
	_, js := s.As(contracts.ServiceNotifier)
	publisher, err := contracts.NewPublisher(js, contracts.PublisherConfig{Source: "/test"})
	check.OK(s.T, err)
	for id, at := range map[string]time.Time{"evt 1": {}, "evt-2": time.Now().Add(24 * time.Hour)} {
		check.OK(s.T, check.Err(publisher.Publish(s.Context(), contracts.Event{
			EventID: id, EventType: "TABLE", AggregateType: "RESTAURANT", NotBefore: at,
			Extra: map[string]json.RawMessage{"restaurant_id": []byte("5")},
		})))
	}
	videos := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/job-1.vtt" {
			_, _ = w.Write([]byte(captions))
			return
		}
		http.NotFound(w, r)
	}))
	s.Cleanup(videos.Close)
	for _, id := range []string{"job-1", "job-2"} {
		sub := importer.Submission{ImportJob: contracts.ImportJob{
			JobID: id, OwnerID: Hebrew, SourceType: "captions", URL: videos.URL + "/" + id + ".vtt",
		}}
		check.OK(s.T, func() error { _, _, err := i.Submit(s.Context(), sub); return err }())
		check.OK(s.T, i.Follow(s.Context(), id, func(importer.Job) error { return nil }))
	}
	answer, err := e.Enrich(s.Context(), contracts.EnrichRequest{WaitMS: 60_000, Results: []contracts.Restaurant{
		{PlaceID: PlaceID, Name: "פיצה הצוק", Address: "דיזנגוף 142, תל אביב-יפו", CityText: "תל אביב", Phone: "03-000-0101"},
	}})
	check.OK(s.T, err)
	check.That(s.T, answer.Pending == 0, "the place is pending: %+v", answer)
	s.await(n, "evt 1")
	s.await(n, "evt-2")
}

// Fill gives the pages of a deployed site something to show: jobs, dead letters, an event, imports, a place, a held lock, and a stream of
// a person, with a job and a schedule.
func (s *Site) Fill() {
	s.Helper()
	s.Business()
	for stream, of := range map[string][2]string{
		contracts.StreamEnrichJobs:    {"ENRICHER", "jobs.enrich.x"},
		contracts.StreamEvents:        {"NOTIFIER", "events.USER.x"},
		contracts.StreamImportJobs:    {"IMPORTER", "jobs.import.web.x"},
		contracts.StreamNotifications: {"NOTIFIER", "notify.send.x"},
	} {
		s.JetStream = natstest.InAccount(s.T, s.Conn, of[0])
		first := DeadLetter(1, func(l *worker.DeadLetter) { l.Sequence, l.Stream, l.Subject = 1000, stream, of[1] })
		s.PutDeadLetters(first, DeadLetter(2), DeadLetter(3), DeadLetter(4), DeadLetter(5))
	}
	own := check.Must(jetstream.New(s.Conn))(s.T)
	cfg := worker.StreamConfig("MINE", "mine.>")
	cfg.MaxBytes = 1 << 20
	check.OK(s.T, check.Err(own.CreateStream(s.Context(), cfg)))
	check.OK(s.T, check.Err(own.CreateConsumer(s.Context(), "MINE", jetstream.ConsumerConfig{Durable: "mine", FilterSubject: "mine.>"})))
	mine := check.Must(worker.NewClient(own, worker.ClientConfig{Stream: "MINE"}))(s.T)
	check.OK(s.T, check.Err(mine.Insert(s.Context(), worker.NewJob{Subject: "mine.1"})))
	check.OK(s.T, check.Err(mine.Schedule(s.Context(), worker.Periodic{Cron: "0 9 * * 1-5", Name: "daily", Subject: "mine.report"})))
	locks := check.Must(kvlock.NewLocker(s.Context(), own, kvlock.LockerConfig{Bucket: contracts.BucketLocks}))(s.T)
	s.Cleanup(locks.Close)
	check.OK(s.T, check.Err(locks.Acquire(s.Context(), "nightly", kvlock.AcquireOptions{})))
}

// await waits until each member of the staff has a notification of an event, and none is being processed.
func (s *Site) await(n *notifier.Notifier, event string) {
	s.Helper()
	for look := time.NewTicker(5 * time.Millisecond); ; <-look.C {
		page, err := n.Notifications(s.Context(), notifier.Query{EventID: event})
		check.OK(s.T, err)
		busy := slices.ContainsFunc(page.Notifications, func(r notifier.Notification) bool {
			return r.State == "pending" || r.State == "sending"
		})
		if len(page.Notifications) == 3 && !busy {
			return
		}
	}
}

// running is a running service, which can be stopped.
type running interface{ Stop() error }

// started starts a service on a new connection.
func started[S running](s *Site, user string, start func(context.Context, *nats.Conn) (S, error)) S {
	s.Helper()
	nc, _ := s.As(user)
	svc, err := start(s.Context(), nc)
	check.OK(s.T, err)
	s.Cleanup(func() { check.OK(s.T, svc.Stop()) })
	return svc
}
