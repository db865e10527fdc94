package console_test

import (
	"html"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service/console"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

// visitor is a person who opens every page to which a link or a form of another page leads.
type visitor struct {
	*consoletest.Site

	deeds  map[string]bool   // the addresses of actions
	header []string          // of each request
	texts  map[string]string // of the pages, by their addresses
}

var (
	acts  = regexp.MustCompile(`formaction="([^"]+)"|method="post" action="([^"]+)"`)
	field = regexp.MustCompile(`<select name="([^"]+)"|<option(?: value="([^"]*)")?[^>]*>([^<]*)|name="([^"]+)"(?: value="([^"]*)")?`)
	shows = regexp.MustCompile(`(?s)<form[^>]* method="get" action="([^"]+)"(.*?)</form>`)
	link  = regexp.MustCompile(`<a[^>]* href="(/[^"]*)"|hx-get="([^"]+)"`)
)

// visit opens all pages. A page to which only a form leads is opened, and its own links are not followed: filters have no end.
func visit(s *consoletest.Site, header ...string) *visitor {
	s.Helper()
	v := &visitor{s, map[string]bool{}, header, map[string]string{}}
	for next := []string{
		"/", "/places?id=" + url.QueryEscape(consoletest.PlaceID), "/imports?id=job-1", "/imports?id=job-2", "/notifications?event=evt+1", "/notifications?event=evt-2",
	}; len(next) > 0; next = next[1:] {
		page := v.open(next[0])
		for _, m := range link.FindAllStringSubmatch(page, -1) {
			next = append(next, html.UnescapeString(m[1]+m[2]))
		}
		for _, m := range shows.FindAllStringSubmatch(page, -1) {
			kept, list, choices := url.Values{}, "", []url.Values{{}}
			for _, f := range field.FindAllStringSubmatch(m[2], -1) {
				switch {
				case f[1] != "":
					list = f[1]
				case f[4] != "":
					kept.Set(f[4], html.UnescapeString(f[5]))
				case strings.Contains(f[0], "value="):
					choices = append(choices, url.Values{list: {f[2]}})
				default:
					choices = append(choices, url.Values{list: {f[3]}})
				}
			}
			for _, values := range choices {
				maps.Copy(values, kept)
				v.open(m[1] + "?" + values.Encode())
			}
		}
	}
	return v
}

// open opens a page, notes its actions and returns its text, "" for one that was opened before.
func (v *visitor) open(at string) string {
	v.Helper()
	key := regexp.MustCompile(`until=[^&]*`).ReplaceAllString(at, "") // the moment at which a page was made
	if _, known := v.texts[key]; known {
		return ""
	}
	v.texts[key] = v.Get(at, http.StatusOK, v.header...)
	for _, m := range acts.FindAllStringSubmatch(v.texts[key], -1) {
		v.deeds[m[1]+m[2]] = m[1]+m[2] != "/sign-out"
	}
	return v.texts[key]
}

// fill gives the pages of a deployed site something to show: jobs, dead letters, an event, imports, a place, a held lock, and a stream of
// a person, with a job and a schedule.
func fill(s *consoletest.Site) {
	s.Helper()
	s.Business()
	for stream, account := range map[string]string{
		contracts.StreamEnrichJobs: "ENRICHER", contracts.StreamImportJobs: "IMPORTER", contracts.StreamEvents: "NOTIFIER",
		contracts.StreamNotifications: "NOTIFIER",
	} {
		s.JetStream = natstest.InAccount(s.T, s.Conn, account)
		s.PutLetters(consoletest.Letter(1, func(l *worker.DeadLetter) { l.Stream = stream }), consoletest.Letter(2))
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

// lines is a log.
type lines struct {
	sync.Mutex
	strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	return l.Builder.Write(p)
}

func (l *lines) String() string {
	l.Lock()
	defer l.Unlock()
	return l.Builder.String()
}

// Every page opens for every user of NATS who may run a console, at once: a page that waits in vain fails. NATS denies nothing. A person who
// may not act is offered no action on any of them, and one that is forged is refused.
func TestEveryPageOpens(t *testing.T) {
	t.Parallel()
	for user, mine := range map[string]string{"console": "not visible to this user", "admin": "mine.report"} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			guard, secrets := consoletest.Keys(t)
			log := &lines{}
			s, _ := consoletest.Deployed(t, user, func(c *console.Config) { c.Access, c.Logger = guard, slog.New(slog.NewTextHandler(log, nil)) })
			fill(s)
			as := func(name string) []string { return []string{"Authorization", "Bearer " + secrets[name]} }
			operator, viewer := visit(s, as("operator")...), visit(s, as("viewer")...)
			for _, path := range []string{"/jobs/EVENTS?account=NOTIFIER", "/jobs/NOTIFICATIONS?account=NOTIFIER", "/jobs/ENRICH_JOBS?account=ENRICHER"} {
				check.That(t, operator.texts[path] != "", "nothing leads to %s", path)
			}
			check.Says(t, operator.texts["/jobs"]+operator.texts["/schedules"], "MINE", mine)
			check.That(t, len(operator.deeds) > 15, "an operator is offered %d actions: %v", len(operator.deeds), operator.deeds)
			check.Equal(t, map[string]bool{"/sign-out": false}, viewer.deeds)
			for path, does := range operator.deeds {
				for _, name := range []string{"viewer", "bound"} {
					if does {
						s.Post(path, url.Values{}, http.StatusForbidden, as(name)...)
					}
				}
			}
			refused := s.Get("/", http.StatusForbidden, as("bound")...)
			check.That(t, !strings.Contains(refused, `href="/dead"`), "a bound key is led to pages: %s", refused)
			check.Same(t, "log", log.String(), "")
		})
	}
}

// A page for which the console's user lacks a permission says at once which, however the server denies it, and the log has it once: for a
// user whose account has no import, for one with a list of permissions, and for a bucket of the user's own account.
func TestDeniedPagesNameWhatIsMissing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ user, path, denied string }{
		{"console", "/jobs/MINE", "$JS.API.CONSUMER.LIST.MINE"},
		{"console", "/jobs/MINE/1", "$JS.API.CONSUMER.LIST.MINE"},
		{"console", "/keys/results?account=NOTIFIER&bucket=inbox", "$JS.NOTIFIER.API.DIRECT.GET.KV_inbox"},
		{"console", "/keys?account=NOTIFIER&bucket=directory", "$JS.NOTIFIER.API.DIRECT.GET.KV_directory"},
		{"publisher", "/jobs/EVENTS", "$JS.API.CONSUMER.LIST.EVENTS"},
		{"publisher", "/audit", "$JS.API.STREAM.INFO.AUDIT"},
		{"publisher", "/dead", "$JS.API.STREAM.INFO.DEAD"},
		{"importer", "/jobs/IMPORT_JOBS", "$JS.API.DIRECT.GET.IMPORT_JOBS"},
		{"importer", "/dead", "$JS.API.STREAM.INFO.AUDIT"},
		{"importer", "/audit", "$JS.API.STREAM.INFO.AUDIT"},
		{"importer", "/jobs", "$JS.API.STREAM.LIST"},
		{"importer", "/schedules", "$JS.API.STREAM.LIST"},
		{"importer", "/imports?id=job-1", "importer.v1.get"},
		{"notifier", "/keys", "$JS.API.STREAM.INFO.KV_locks"},
		{"notifier", "/keys/limits", "$JS.API.STREAM.INFO.KV_locks"},
	} {
		t.Run(c.user+c.path, func(t *testing.T) {
			t.Parallel()
			log := &lines{}
			s, _ := consoletest.Deployed(t, c.user, func(cfg *console.Config) {
				cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
				if c.user != "console" {
					cfg.Accounts = cfg.Accounts[3:] // its own
				}
			})
			own := check.Must(jetstream.New(s.Conn))(t)
			cfg := worker.StreamConfig("MINE", "mine.>")
			cfg.MaxBytes = 1 << 20
			check.OK(t, check.Err(own.CreateStream(t.Context(), cfg)))
			for range 2 {
				_, said, _ := strings.Cut(s.Get(c.path, http.StatusServiceUnavailable), `role="alert">`)
				check.Says(t, said[:min(len(said), 300)], "NATS denies this console a request", c.denied)
			}
			check.Same(t, "lines of the log about "+c.denied, strings.Count(log.String(), "subject="+c.denied+" "), 1)
		})
	}
}
