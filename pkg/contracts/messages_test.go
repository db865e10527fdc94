package contracts_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/testbed"
	_ "github.com/expediter-io/expediter/internal/testbed/fastelection" // in every server process
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/contracts/internal/render"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// channels returns the streams of the described channels, by address.
func channels(t *testing.T) map[string]string {
	t.Helper()
	var doc struct {
		Channels map[string]struct {
			Address string `json:"address"`
			Stream  string `json:"x-stream"`
		} `json:"channels"`
	}
	files := check.Must(render.Files(root))(t)
	check.OK(t, json.Unmarshal(files["pkg/contracts/asyncapi.json"], &doc))
	all := map[string]string{}
	for _, c := range doc.Channels {
		all[c.Address] = c.Stream
	}
	return all
}

var parameter = regexp.MustCompile(`\{[a-zA-Z_]+\}`)

// covers reports whether a filter of subjects selects a subject.
func covers(filter, subject string) bool {
	pattern := regexp.QuoteMeta(filter)
	pattern = strings.ReplaceAll(strings.ReplaceAll(pattern, `\*`, `[^.]+`), ">", ".+")
	return regexp.MustCompile("^" + pattern + "$").MatchString(subject)
}

// Every subject of every stream and bucket is described, and every channel is one of its stream, or a change of its bucket.
func TestEveryStreamIsDescribed(t *testing.T) {
	t.Parallel()
	all := channels(t)
	for _, config := range contracts.Assets(contracts.AssetOptions{}) {
		filters := slices.Clone(config.Subjects)
		if config.RePublish != nil {
			filters = append(filters, config.RePublish.Destination)
		}
		for _, filter := range filters {
			found := false
			for address, stream := range all {
				if stream == config.Name && covers(filter, parameter.ReplaceAllString(address, "x")) {
					found = true
				}
			}
			check.That(t, found, "no channel is on %s of stream %s", filter, config.Name)
		}
		for address, stream := range all {
			sample := parameter.ReplaceAllString(address, "x")
			check.That(t, stream != config.Name || slices.ContainsFunc(filters, func(f string) bool { return covers(f, sample) }),
				"%s is no subject of stream %s, which has %v", address, stream, filters)
		}
	}
}

// The functions that make the subjects of messages make those that are described.
func TestSubjectsAreMadeAsDescribed(t *testing.T) {
	t.Parallel()
	must := func(subject string, err error) string { return check.Must(subject, err)(t) }
	all := channels(t)
	for address, subject := range map[string]string{
		"$KV.directory.{recipient_type}.{user_id}":                    "$KV.directory.CUSTOMER.u",
		"events.{aggregate_type}.{event_type}":                        must(contracts.EventSubject("a", "b")),
		"jobs.enrich.{provider}.{place_id}":                           must(contracts.EnrichJobSubject("wolt", "p.1")),
		"jobs.import.{priority}.{job_id}":                             must(contracts.ImportJobSubject("high", "j")),
		"notify.send.{channel}.{recipient_type}.{user_id}.{event_id}": must(contracts.NotifySendSubject("push", "CUSTOMER", "u", "e")),
	} {
		check.That(t, all[address] != "" && covers(parameter.ReplaceAllString(address, "*"), subject), "%s is not described as %s", subject,
			address)
	}
}

func TestDescriptionFollowsItsStandard(t *testing.T) {
	t.Parallel()
	// 3.0.0 of https://github.com/asyncapi/spec-json-schemas, under the Apache License 2.0.
	file := check.Must(os.Open(filepath.Join("testdata", "asyncapi-3.0.json.gz")))(t)
	defer file.Close()
	unpacked := check.Must(gzip.NewReader(file))(t)
	compiler := jsonschema.NewCompiler()
	check.OK(t, compiler.AddResource("standard.json", check.Must(jsonschema.UnmarshalJSON(unpacked))(t)))
	standard := check.Must(compiler.Compile("standard.json"))(t)
	content := check.Must(render.Files(root))(t)["pkg/contracts/asyncapi.json"]
	check.OK(t, standard.Validate(check.Must(jsonschema.UnmarshalJSON(bytes.NewReader(content)))(t)))
}

var subjectPattern = regexp.MustCompile(`^[-_=A-Za-z0-9]+(\.[-_=A-Za-z0-9]+)*$`)

// builders are all functions that put an id of the outside into a subject or a key.
var builders = map[string]struct {
	build  func(id string) (string, error)
	prefix string
	tokens int
}{
	"EnrichJobSubject":  {func(id string) (string, error) { return contracts.EnrichJobSubject("wolt", id) }, "jobs.enrich.wolt.", 4},
	"ImportJobSubject":  {func(id string) (string, error) { return contracts.ImportJobSubject("high", id) }, "jobs.import.high.", 4},
	"EventSubject":      {func(id string) (string, error) { return contracts.EventSubject(id, id) }, "events.", 3},
	"NotifySendSubject": {func(id string) (string, error) { return contracts.NotifySendSubject("email", "CUSTOMER", id, id) }, "notify.send.email.CUSTOMER.", 6},
	"EnrichEntryKey":    {func(id string) (string, error) { return contracts.EnrichEntryKey("wolt", id) }, "wolt.", 2},
	"InboxKey":          {func(id string) (string, error) { return contracts.InboxKey("CUSTOMER", id, id) }, "CUSTOMER.", 3},
}

func TestSubjectsAndKeysTakeAnyID(t *testing.T) {
	t.Parallel()
	ids := []string{
		"ChIJ123", "..", ".", "a.b", "*", ">", " ", "\t", "\x00", "a/b", `a\b`, "מסעדה", "\xff", "$KV.x", "=", "=YQ", "\u202e",
		strings.Repeat("é", contracts.MaxID/2),
	}
	for name, builder := range builders {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := make(map[string]string)
			for _, id := range ids {
				subject, err := builder.build(id)
				if err != nil {
					t.Errorf("%q: %v", id, err)
					continue
				}
				check.That(t, subjectPattern.MatchString(subject) && strings.HasPrefix(subject, builder.prefix) &&
					strings.Count(subject, ".") == builder.tokens-1,
					"%q: got %q", id, subject)
				check.That(t, len(subject) <= kvlock.MaxKeyBytes, "%d bytes, at most %d", len(subject), kvlock.MaxKeyBytes)
				other, twice := seen[subject]
				check.That(t, !twice, "%q and %q are both %q", id, other, subject)
				seen[subject] = id
			}
		})
	}
}

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// applied returns a separate server with all assets.
func applied(t *testing.T) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, js := natstest.Connect(t, natstest.Server(t))
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{}), provision.Options{})))
	return nc, js
}

func TestAssetsFitWhatIsReserved(t *testing.T) {
	t.Parallel()
	const limit = 200 << 20
	for name, options := range map[string]contracts.AssetOptions{
		"memory": {MaxBytes: limit, Storage: jetstream.MemoryStorage},
		"file":   {MaxBytes: limit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, js := natstest.Connect(t, natstest.Server(t))
			want := contracts.Assets(options)
			var total int64
			for _, config := range want {
				total += config.MaxBytes
				check.That(t, config.MaxBytes >= 1<<20 && config.MaxConsumers > 0 && config.Duplicates > 0 && config.Storage == options.Storage,
					"%s is not bounded: %+v", config.Name, config)
			}
			check.That(t, total <= limit && total >= limit-int64(len(want)), "%d bytes in all, want %d", total, limit)
			check.ErrorIs(t, check.Err(provision.Apply(t.Context(), js, want, provision.Options{})), nil)
		})
	}
}

// Where there is less space, those that are small are as large as declared, and the others of one size.
func TestTheLargestAreCut(t *testing.T) {
	t.Parallel()
	const limit = 8 << 30
	declared := contracts.Assets(contracts.AssetOptions{})
	var cut int64
	for i, config := range contracts.Assets(contracts.AssetOptions{MaxBytes: limit}) {
		whole := declared[i].MaxBytes
		if config.MaxBytes == whole {
			continue
		}
		if cut == 0 {
			cut = config.MaxBytes
		}
		check.That(t, config.MaxBytes == cut && whole > cut,
			"%s has %d bytes of %d, where another has %d", config.Name, config.MaxBytes, whole, cut)
	}
	check.That(t, cut >= 512<<20, "the largest have %d bytes", cut)
}

// TestRenderedFilesAreAccepted creates every stream from its file, as an operator's tool does.
func TestRenderedFilesAreAccepted(t *testing.T) {
	t.Parallel()
	_, js := natstest.Connect(t, natstest.Server(t))
	var files []string
	for _, folder := range []string{"streams", "buckets", "objects"} {
		found := check.Must(filepath.Glob(filepath.Join(root, "deploy", "nats", folder, "*.json")))(t)
		files = append(files, found...)
	}
	for _, file := range files {
		raw := check.Must(os.ReadFile(file))(t)
		var config jetstream.StreamConfig
		err := json.Unmarshal(raw, &config)
		check.Require(t, err == nil, "%s: %v", file, err)
		config.Replicas = 1
		check.ErrorIs(t, check.Err(js.CreateStream(t.Context(), config)), nil, file)
	}
	for _, change := range check.Must(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{}), provision.Options{DryRun: true}))(t) {
		check.That(t, change.Action == provision.None, "the file of %s is not its declaration: %v", change.Stream, change.Differences)
	}
}

const root = "../.."

// TestGeneratedFilesAreCurrent fails when a declaration and its files differ: run `go generate` in pkg/contracts, which runs it with
// -update. A file that is generated no more has to be deleted by hand.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	t.Parallel()
	files := check.Must(render.Files(root))(t)
	var found []string
	for _, folder := range render.Folders() {
		names := check.Must(filepath.Glob(filepath.Join(root, folder, "*")))(t)
		for _, name := range names {
			relative := check.Must(filepath.Rel(root, name))(t)
			found = append(found, filepath.ToSlash(relative))
		}
	}
	for name, want := range files {
		testbed.Golden(t, filepath.Join(root, name), want)
	}
	for _, name := range found {
		check.That(t, files[name] != nil, "%s is not generated by anything", name)
	}
	check.That(t, slices.Contains(found, "deploy/nats/streams/EVENTS.json"), "the folders were not found")
}

// TestAPlaceIsQueuedOnce: also with another message id, also after the claim and the window of ids have ended.
func TestAPlaceIsQueuedOnce(t *testing.T) {
	t.Parallel()
	_, js := applied(t)
	subject := check.Must(contracts.EnrichJobSubject(contracts.ProviderWolt, "ChIJ123"))(t)
	publish := func(id string) error {
		return check.Err(js.Publish(t.Context(), subject, []byte("{}"), jetstream.WithMsgID(id)))
	}
	check.OK(t, publish("claim-1"))
	var refused *jetstream.APIError
	err := publish("claim-2")
	check.Require(t, errors.As(err, &refused) && refused.ErrorCode == 10077, "got %v, want it refused by the stream", err)
	consumer, err := js.CreateConsumer(t.Context(), contracts.StreamEnrichJobs, jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
	check.OK(t, err)
	msg := check.Must(consumer.Next())(t)
	check.That(t, publish("claim-3") != nil, "a second job was queued while the first was being worked")
	check.OK(t, msg.DoubleAck(t.Context()))
	check.ErrorIs(t, publish("claim-4"), nil)
}

func TestANotificationIsStoredOnce(t *testing.T) {
	t.Parallel()
	_, js := applied(t)
	subject := check.Must(contracts.NotifySendSubject("email", "CUSTOMER", "user@example.com", "evt/001"))(t)
	check.OK(t, check.Err(js.Publish(t.Context(), subject, nil, jetstream.WithExpectLastSequencePerSubject(0))))
	check.That(t, check.Err(js.Publish(t.Context(), subject, nil, jetstream.WithExpectLastSequencePerSubject(0))) != nil, "stored twice")
	check.That(t, check.Err(js.Publish(t.Context(), subject, nil)) != nil, "stored twice by a publisher that expects nothing")
}

// TestADeadLetterIsStoredOnce: also when the worker that gives the job up again has been away for most of a day.
func TestADeadLetterIsStoredOnce(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		_, js := natstest.Connect(t, srv)
		check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), provision.Options{})))
		began := time.Now()
		for _, c := range []struct {
			at        time.Duration
			duplicate bool
		}{{0, false}, {3 * time.Minute, true}, {23 * time.Hour, true}, {25 * time.Hour, false}} {
			natstest.Pass(c.at - time.Since(began))
			ack, err := js.Publish(t.Context(), "dead.ENRICH_JOBS.jobs.enrich.wolt.x", []byte("{}"), jetstream.WithMsgID("letter"))
			check.That(t, err == nil && ack.Duplicate == c.duplicate, "after %s: %+v, %v, want a duplicate: %t", c.at, ack, err, c.duplicate)
		}
	})
}

func TestAdvisoriesAreKept(t *testing.T) {
	t.Parallel()
	_, js := applied(t)
	subject := check.Must(contracts.ImportJobSubject(contracts.PriorityNormal, "job1"))(t)
	check.OK(t, check.Err(js.Publish(t.Context(), subject, []byte("{}"))))
	dead := check.Must(js.OrderedConsumer(t.Context(), contracts.StreamDead, jetstream.OrderedConsumerConfig{}))(t)
	consumer, err := js.CreateConsumer(t.Context(), contracts.StreamImportJobs, jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
	check.OK(t, err)
	msg := check.Must(consumer.Next())(t)
	check.OK(t, msg.TermWithReason("cannot be read"))
	advisory := check.Must(dead.Next())(t)
	want := "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.IMPORT_JOBS."
	check.That(t, strings.HasPrefix(advisory.Subject(), want), "got %s", advisory.Subject())
}

// Each service has its own, and all of them together have everything.
func TestAssetsOfServices(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	consumers := 0
	for _, s := range contracts.Services() {
		options := contracts.AssetOptions{Services: []string{s}}
		for _, config := range contracts.Assets(options) {
			seen[config.Name]++
		}
		consumers += len(provision.Consumers(options))
	}
	for _, config := range contracts.Assets(contracts.AssetOptions{}) {
		want := 1
		if config.Name == contracts.StreamDead || config.Name == "KV_"+contracts.BucketJobs {
			want = 3
		}
		check.Equal(t, seen[config.Name], want, config.Name+" is services")
	}
	all := len(provision.Consumers(contracts.AssetOptions{}))
	check.That(t, consumers == all && all != 0, "the services have %d consumers, want %d", consumers, all)
}
