package provision_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/provision"
	_ "github.com/expediter-io/expediter/internal/testbed/fastelection" // in every server process
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// applied returns a separate server with all assets.
func applied(t *testing.T) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, js := natstest.Connect(t, natstest.Server(t))
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{}), provision.Options{})))
	return nc, js
}

// compare compares the streams on the server with their declarations.
func compare(t *testing.T, js jetstream.StreamManager, want []jetstream.StreamConfig) []provision.Difference {
	t.Helper()
	changes := check.Must(provision.Apply(t.Context(), js, want, provision.Options{AllowShrink: true, DryRun: true}))(t)
	var all []provision.Difference
	for _, change := range changes {
		all = append(all, change.Differences...)
	}
	return all
}

func actions(changes []provision.Change) map[provision.Action]int {
	counts := make(map[provision.Action]int)
	for _, change := range changes {
		counts[change.Action]++
	}
	return counts
}

func TestApplyCreatesWhatIsMissing(t *testing.T) {
	t.Parallel()
	_, js := natstest.Connect(t, natstest.Server(t))
	want := contracts.Assets(contracts.AssetOptions{})
	total := len(want)

	differences := compare(t, js, want)
	check.Require(t, len(differences) == total && differences[0].Missing, "got %v, want %d missing", differences, total)
	for range 2 {
		changes, err := provision.Apply(t.Context(), js, want, provision.Options{DryRun: true})
		got := actions(changes)
		check.Require(t, err == nil && got[provision.Create] == total, "dry run: got %v, %v", got, err)
	}
	changes, err := provision.Apply(t.Context(), js, want, provision.Options{})
	got := actions(changes)
	check.Require(t, err == nil && got[provision.Create] == total, "got %v, %v", got, err)
	differences = compare(t, js, want)
	check.That(t, differences == nil, "the server changed declared settings: %v", differences)
	changes, err = provision.Apply(t.Context(), js, want, provision.Options{})
	got = actions(changes)
	check.That(t, err == nil && got[provision.None] == total, "second time: got %v, %v", got, err)
	for _, bucket := range under("KV_", contracts.AssetOptions{}) {
		check.ErrorIs(t, check.Err(js.KeyValue(t.Context(), strings.TrimPrefix(bucket.Name, "KV_"))), nil, bucket.Name)
	}
	for _, bucket := range under("OBJ_", contracts.AssetOptions{}) {
		check.ErrorIs(t, check.Err(js.ObjectStore(t.Context(), strings.TrimPrefix(bucket.Name, "OBJ_"))), nil, bucket.Name)
	}
}

// under returns the streams under the buckets of a kind.
func under(prefix string, options contracts.AssetOptions) []jetstream.StreamConfig {
	return slices.DeleteFunc(contracts.Assets(options), func(c jetstream.StreamConfig) bool { return !strings.HasPrefix(c.Name, prefix) })
}

func TestApplyUpdatesWhatMayBeUpdated(t *testing.T) {
	t.Parallel()
	_, js := applied(t)
	want := contracts.Assets(contracts.AssetOptions{})
	const name = contracts.StreamEvents
	changed := want[slices.IndexFunc(want, func(c jetstream.StreamConfig) bool { return c.Name == name })]
	changed.MaxAge = time.Hour
	changed.MaxMsgs = 10
	changed.Description = "by hand"
	changed.Subjects = []string{"other.>", contracts.EventsSubjects}
	changed.DenyDelete = true
	changed.Metadata = map[string]string{"owner": "ops"}
	check.OK(t, check.Err(js.UpdateStream(t.Context(), changed)))

	differences := compare(t, js, want)
	expected := []provision.Difference{
		{Stream: name, Field: "deny_delete", Got: "true"},
		{Stream: name, Field: "description", Got: `"by hand"`, Want: `"Domain events"`, Fixed: true},
		{Stream: name, Field: "max_age", Got: "1h0m0s", Want: "168h0m0s", Fixed: true},
		{Stream: name, Field: "max_msgs", Got: "10", Fixed: true},
		{Stream: name, Field: "subjects", Got: `["events.>","other.>"]`, Want: `["events.>"]`, Fixed: true, Shrinks: true},
	}
	diff := cmp.Diff(expected, differences)
	check.Require(t, diff == "", "-want +got\n%s", diff)
	changes, err := provision.Apply(t.Context(), js, want, provision.Options{AllowShrink: true})
	got := actions(changes)
	check.Require(t, err == nil && got[provision.Update] == 1, "got %v, %v", got, err)
	differences = compare(t, js, want)
	check.Equal(t, differences, expected[:1])
	stream, err := js.Stream(t.Context(), name)
	check.That(t, err == nil && stream.CachedInfo().Config.Metadata["owner"] == "ops", "the operator's metadata is gone: %v", err)
	changes, err = provision.Apply(t.Context(), js, want, provision.Options{})
	got = actions(changes)
	check.That(t, err == nil && got[provision.Refuse] == 1, "third time: got %v, %v", got, err)
}

// TestMetadataIsSharedWithOperatorsAndServer: only the declared keys are compared and written.
func TestMetadataIsSharedWithOperatorsAndServer(t *testing.T) {
	t.Parallel()
	_, js := applied(t)
	want := under("KV_", contracts.AssetOptions{})[:1]
	byHand := want[0]
	byHand.Metadata = map[string]string{"owner": "ops", "team": "old"}
	check.OK(t, check.Err(js.UpdateStream(t.Context(), byHand)))
	want[0].Metadata = map[string]string{"team": "new"}
	for _, action := range []provision.Action{provision.Update, provision.None} {
		changes, err := provision.Apply(t.Context(), js, want, provision.Options{})
		check.Require(t, err == nil && changes[0].Action == action, "got %+v, %v, want %s", changes, err, action)
	}
	stream := check.Must(js.Stream(t.Context(), want[0].Name))(t)
	metadata := stream.CachedInfo().Config.Metadata
	check.That(t, metadata["owner"] == "ops" && metadata["team"] == "new" && metadata["_nats.level"] != "", "got %v", metadata)
}

func TestApplyGoesOnAfterAFailure(t *testing.T) {
	t.Parallel()
	_, js := natstest.Connect(t, natstest.Server(t))
	check.OK(t, check.Err(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "MINE", Subjects: []string{"events.a"}})))
	want := contracts.Assets(contracts.AssetOptions{})
	changes, err := provision.Apply(t.Context(), js, want, provision.Options{})
	check.ErrorContains(t, err, "stream EVENTS")
	failed := slices.DeleteFunc(slices.Clone(changes), func(c provision.Change) bool { return c.Err == nil })
	check.That(t, len(failed) == 1 && failed[0].Stream == contracts.StreamEvents && len(changes) == len(want), "failed: %+v", failed)
	check.Equal(t, len(compare(t, js, want)), 1, "result")
}

// A stream that an operator has made larger stays so until --allow-shrink, and each difference names the messages that lowering
// it drops.
func TestApplyKeepsWhatIsLarger(t *testing.T) {
	t.Parallel()
	_, js := natstest.Connect(t, natstest.Server(t))
	want := contracts.Assets(contracts.AssetOptions{Services: []string{contracts.ServiceNotifier}})[1]
	want.MaxBytes, want.MaxMsgs, want.MaxMsgsPerSubject = 1500, 1, 1
	larger := want
	larger.MaxAge, larger.MaxBytes, larger.MaxConsumers, larger.MaxMsgs = 2*want.MaxAge, 2*want.MaxBytes, 2*want.MaxConsumers, 0
	larger.MaxMsgsPerSubject, larger.Subjects = -1, append(larger.Subjects, "more.>")
	check.OK(t, check.Err(js.CreateStream(t.Context(), larger)))
	for range 2 {
		check.OK(t, check.Err(js.Publish(t.Context(), "events.A.B", make([]byte, 1000))))
	}
	fields := map[string]string{
		"max_age": "", "max_bytes": "bytes of the oldest messages", "max_consumers": "", "max_msgs": "1 of the oldest messages",
		"max_msgs_per_subject": "all but the newest 1 messages of each subject", "subjects": "",
	}
	for _, options := range []provision.Options{{}, {DryRun: true, AllowShrink: true}, {CreateOnly: true, AllowShrink: true}, {AllowShrink: true}} {
		changes := check.Must(provision.Apply(t.Context(), js, []jetstream.StreamConfig{want}, options))(t)
		removes := options.AllowShrink && !options.CreateOnly
		action := provision.Keep
		if removes {
			action = provision.Update
		}
		check.Require(t, len(changes) == 1 && changes[0].Action == action && len(changes[0].Differences) == len(fields),
			"%+v: got %+v", options, changes)
		for _, d := range changes[0].Differences {
			drops, known := fields[d.Field]
			check.That(t, known && d.Shrinks && d.Fixed == removes && drops == "" == (d.Drops == "") && strings.HasSuffix(d.Drops, drops),
				"%+v: got %+v, want it to drop %q", options, d, drops)
		}
		stream := check.Must(js.Stream(t.Context(), want.Name))(t)
		left := uint64(2)
		if removes && !options.DryRun {
			left = 1
		}
		check.Equal(t, stream.CachedInfo().State.Msgs, left, fmt.Sprintf("%+v: messages are left", options))
	}
}

// Fewer replicas are a loss, too.
func TestFewerReplicasAreALoss(t *testing.T) {
	t.Parallel()
	for now, drops := range map[int]string{1: "the copies on 2 of 3 servers", 5: ""} {
		info := jetstream.StreamInfo{Config: jetstream.StreamConfig{Name: "S", Replicas: 3}}
		got := check.Must(provision.Compare(info, jetstream.StreamConfig{Name: "S", Replicas: now}))(t)
		check.That(t, len(got) == 1 && got[0].Drops == drops && got[0].Shrinks == (drops != ""), "%d: %+v", now, got)
	}
}

func TestApplyConsumers(t *testing.T) {
	t.Parallel()
	_, js := natstest.Connect(t, natstest.Server(t))
	options := contracts.AssetOptions{Channels: []string{"pigeon"}, Services: []string{contracts.ServiceNotifier}}
	want := provision.Consumers(options)
	apply := func(o provision.Options, action provision.Action, n int) []provision.Change {
		t.Helper()
		changes, err := provision.ApplyConsumers(t.Context(), js, want, o)
		check.Require(t, err == nil && actions(changes)[action] == n, "got %+v, %v, want %s %d times", changes, err, action, n)
		return changes
	}
	apply(provision.Options{DryRun: true}, provision.Create, len(want))
	check.That(t, check.Err(provision.ApplyConsumers(t.Context(), js, want, provision.Options{})) != nil,
		"consumers were made without their streams")
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(options), provision.Options{})))
	apply(provision.Options{DryRun: true}, provision.Create, len(want))
	apply(provision.Options{CreateOnly: true}, provision.Create, len(want))
	apply(provision.Options{}, provision.None, len(want))

	change := func(cfg jetstream.ConsumerConfig) {
		t.Helper()
		check.OK(t, check.Err(js.UpdateConsumer(t.Context(), contracts.StreamEvents, cfg)))
	}
	byHand := want[0].Config
	byHand.AckWait, byHand.MaxDeliver, byHand.Metadata = time.Minute, 3, map[string]string{"owner": "ops"}
	change(byHand)
	kept := apply(provision.Options{CreateOnly: true}, provision.Keep, 1)
	check.Equal(t, kept[0].Differences, []provision.Difference{
		{Stream: contracts.StreamEvents, Consumer: "notifier", Field: "max_deliver", Got: "3", Want: "-1"},
	})
	apply(provision.Options{}, provision.Update, 1)
	consumer := check.Must(js.Consumer(t.Context(), contracts.StreamEvents, "notifier"))(t)
	got := consumer.CachedInfo().Config
	check.That(t, got.AckWait == time.Minute && got.MaxDeliver == -1 && got.Metadata["owner"] == "ops", "got %+v", got)
	options.AckWait = 10 * time.Second
	want = provision.Consumers(options)
	apply(provision.Options{}, provision.Update, len(want))

	check.OK(t, js.DeleteConsumer(t.Context(), contracts.StreamEvents, "notifier"))
	byHand = want[0].Config
	byHand.AckPolicy = jetstream.AckAllPolicy
	check.OK(t, check.Err(js.CreateConsumer(t.Context(), contracts.StreamEvents, byHand)))
	apply(provision.Options{}, provision.Refuse, 1)
}

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// refusals calls a function when the server first refuses to make a stream.
type refusals struct {
	jetstream.StreamManager

	refused func()
}

func (r *refusals) CreateStream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := r.StreamManager.CreateStream(ctx, cfg)
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && strings.Contains(api.Description, "no suitable peers for placement") {
		r.refused()
	}
	return stream, err
}

// Streams of all three kinds are applied while no node knows the room of the third one.
func TestApplyWaitsForTheCluster(t *testing.T) {
	t.Parallel()
	c := natstest.Cluster(t, 3)
	_, js := natstest.ConnectURL(t, c.URLs())
	down := natstest.Forget(t, c)
	options := contracts.AssetOptions{MaxBytes: 1 << 30, Replicas: 3}
	want := []jetstream.StreamConfig{contracts.Streams(options)[0], under("KV_", options)[0], under("OBJ_", options)[0]}

	changes, err := provision.Apply(t.Context(), js, want, provision.Options{Wait: time.Second})
	for errors.Is(err, context.DeadlineExceeded) { // a busy server, and not an answer
		changes, err = provision.Apply(t.Context(), js, want, provision.Options{Wait: time.Second})
	}
	check.Require(t, errors.Is(err, jsapi.ErrNotReady) && len(changes) == len(want),
		"without the node: got %v, %v, want ErrNotReady", changes, err)
	for i, change := range changes {
		check.ErrorContains(t, change.Err, want[i].Name, "no suitable peers for placement", "see that its nodes are up")
	}

	var once sync.Once
	started := make(chan error, 1)
	manager := &refusals{js, func() { once.Do(func() { go func() { started <- down.Start(t.Context()) }() }) }}
	changes, err = provision.Apply(t.Context(), manager, want, provision.Options{})
	got := actions(changes)
	check.That(t, err == nil && got[provision.Create] == len(want), "got %v, %v, want all created once the node is back", changes, err)
	once.Do(func() {
		t.Error("the server has refused nothing")
		started <- nil
	})
	check.ErrorIs(t, <-started, nil)
	differences := compare(t, js, want)
	check.That(t, differences == nil, "got %v", differences)
	check.ErrorIs(t, c.WaitReady(t.Context()), nil) // a server that is stopped while it makes a replica leaves a goroutine
}

// A change whose answer was lost is reported as made.
func TestApplyReportsWhatItDidWithoutAnAnswer(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := natstest.NewProxy(t, srv)
		_, js := natstest.Connect(t, srv, p.Through())
		want := contracts.Streams(contracts.AssetOptions{})[:1]
		for _, tt := range []struct {
			action  provision.Action
			request string
			age     time.Duration
		}{{provision.Create, "CREATE", 1000 * time.Hour}, {provision.Update, "UPDATE", 2000 * time.Hour}} {
			want[0].MaxAge = tt.age
			p.Hit(func(f natstest.Frame) bool { return f.Subject == "$JS.API.STREAM."+tt.request+"."+want[0].Name }, natstest.ReplyLost, 1)
			changes, err := provision.Apply(t.Context(), js, want, provision.Options{})
			check.That(t, err == nil && changes[0].Action == tt.action && len(changes[0].Differences) == 1,
				"%s: got %v, %v", tt.action, changes, err)
		}
	})
}

// A limit that has no room for the larger size is named, with its value where the server says it. The stream keeps its size and its
// messages, and the others grow.
func TestApplyNamesTheLimitThatIsTooSmall(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ account, server, limit string }{
		"largest stream": {"disk_max_stream_bytes: 14GB", "64GB", "disk_max_stream_bytes of the account, which is 15032385536"},
		"account":        {"max_file: 20GB", "64GB", "max_file of the account, which is 21474836480"},
		"server":         {"max_streams: 20", "20GB", "max_file_store of the server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "server.conf")
			text := "jetstream { max_file_store: " + test.server + " }\naccounts { A { jetstream { " + test.account +
				" }, users: [ { user: u, password: p } ] } }\n"
			check.OK(t, os.WriteFile(file, []byte(text), 0o600))
			_, js := natstest.Connect(t, natstest.Server(t, func(c *natsrun.Config) { c.ConfigFile = file }), nats.UserInfo("u", "p"))
			want := []jetstream.StreamConfig{{Name: "LARGE", Subjects: []string{"large"}}, {Name: "OTHER", Subjects: []string{"other"}}}
			for i := range want {
				want[i].MaxBytes = 1 << 30
				check.OK(t, check.Err(js.CreateStream(t.Context(), want[i])))
				want[i].MaxBytes = []int64{32 << 30, 2 << 30}[i]
			}
			check.OK(t, check.Err(js.Publish(t.Context(), "large", nil)))
			changes, err := provision.Apply(t.Context(), js, want, provision.Options{})
			check.ErrorContains(t, err, "stream LARGE: there is no room for a size of 34359738368 bytes in "+test.limit+":")
			check.OK(t, changes[1].Err)
			for i, size := range []int64{1 << 30, 2 << 30} {
				info := check.Must(js.Stream(t.Context(), want[i].Name))(t).CachedInfo()
				check.Equal(t, info.Config.MaxBytes, size, want[i].Name)
				check.Equal(t, info.State.Msgs, uint64(1-i), want[i].Name)
			}
		})
	}
}
