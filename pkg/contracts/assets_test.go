package contracts_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/contracts/internal/render"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// applied returns a server of its own with all assets.
func applied(t *testing.T) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, js := natstest.Connect(t, natstest.Server(t))
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{}), contracts.ApplyOptions{})))
	return nc, js
}

// compare compares the streams on the server with their declarations.
func compare(t *testing.T, js jetstream.StreamManager, want []jetstream.StreamConfig) []contracts.Difference {
	t.Helper()
	changes := check.Must(contracts.Apply(t.Context(), js, want, contracts.ApplyOptions{AllowShrink: true, DryRun: true}))(t)
	var all []contracts.Difference
	for _, change := range changes {
		all = append(all, change.Differences...)
	}
	return all
}

func actions(changes []contracts.Change) map[contracts.Action]int {
	counts := make(map[contracts.Action]int)
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
		changes, err := contracts.Apply(t.Context(), js, want, contracts.ApplyOptions{DryRun: true})
		got := actions(changes)
		check.Require(t, err == nil && got[contracts.ActionCreate] == total, "dry run: got %v, %v", got, err)
	}
	changes, err := contracts.Apply(t.Context(), js, want, contracts.ApplyOptions{})
	got := actions(changes)
	check.Require(t, err == nil && got[contracts.ActionCreate] == total, "got %v, %v", got, err)
	differences = compare(t, js, want)
	check.That(t, differences == nil, "the server changed declared settings: %v", differences)
	changes, err = contracts.Apply(t.Context(), js, want, contracts.ApplyOptions{})
	got = actions(changes)
	check.That(t, err == nil && got[contracts.ActionNone] == total, "second time: got %v, %v", got, err)
	for _, bucket := range under("KV_", contracts.AssetOptions{}) {
		check.Is(t, check.Err(js.KeyValue(t.Context(), strings.TrimPrefix(bucket.Name, "KV_"))), nil, bucket.Name)
	}
	for _, bucket := range under("OBJ_", contracts.AssetOptions{}) {
		check.Is(t, check.Err(js.ObjectStore(t.Context(), strings.TrimPrefix(bucket.Name, "OBJ_"))), nil, bucket.Name)
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
	expected := []contracts.Difference{
		{Stream: name, Field: "deny_delete", Got: "true"},
		{Stream: name, Field: "description", Got: `"by hand"`, Want: `"Domain events"`, Fixed: true},
		{Stream: name, Field: "max_age", Got: "1h0m0s", Want: "168h0m0s", Fixed: true},
		{Stream: name, Field: "max_msgs", Got: "10", Fixed: true},
		{Stream: name, Field: "subjects", Got: `["events.>","other.>"]`, Want: `["events.>"]`, Fixed: true, Shrinks: true},
	}
	diff := cmp.Diff(expected, differences)
	check.Require(t, diff == "", "-want +got\n%s", diff)
	changes, err := contracts.Apply(t.Context(), js, want, contracts.ApplyOptions{AllowShrink: true})
	got := actions(changes)
	check.Require(t, err == nil && got[contracts.ActionUpdate] == 1, "got %v, %v", got, err)
	differences = compare(t, js, want)
	check.Equal(t, expected[:1], differences)
	stream, err := js.Stream(t.Context(), name)
	check.That(t, err == nil && stream.CachedInfo().Config.Metadata["owner"] == "ops", "the operator's metadata is gone: %v", err)
	changes, err = contracts.Apply(t.Context(), js, want, contracts.ApplyOptions{})
	got = actions(changes)
	check.That(t, err == nil && got[contracts.ActionRefuse] == 1, "third time: got %v, %v", got, err)
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
	for _, action := range []contracts.Action{contracts.ActionUpdate, contracts.ActionNone} {
		changes, err := contracts.Apply(t.Context(), js, want, contracts.ApplyOptions{})
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
	changes, err := contracts.Apply(t.Context(), js, want, contracts.ApplyOptions{})
	check.Contains(t, err, "stream EVENTS")
	failed := slices.DeleteFunc(slices.Clone(changes), func(c contracts.Change) bool { return c.Err == nil })
	check.That(t, len(failed) == 1 && failed[0].Stream == contracts.StreamEvents && len(changes) == len(want), "failed: %+v", failed)
	check.Same(t, "result", len(compare(t, js, want)), 1)
}

// unanswered loses the answer to the first request for each stream.
type unanswered struct {
	jetstream.StreamManager

	unknown map[string]int // for how many requests those are whose answer was lost
}

func (u *unanswered) CreateStream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := u.StreamManager.CreateStream(ctx, cfg)
	if _, again := u.unknown[cfg.Name]; !again {
		u.unknown[cfg.Name] = 2
		return nil, nats.ErrTimeout
	}
	return stream, err
}

// Stream does not know a stream at first, as a node that has just begun to lead.
func (u *unanswered) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	stream, err := u.StreamManager.Stream(ctx, name)
	if err == nil && u.unknown[name] > 0 {
		u.unknown[name]--
		return nil, jetstream.ErrStreamNotFound
	}
	return stream, err
}

// A stream whose answer was lost, and that is made while the next try begins, is created once.
func TestApplyBearsALostAnswer(t *testing.T) {
	t.Parallel()
	_, js := natstest.Connect(t, natstest.Server(t))
	want := contracts.Assets(contracts.AssetOptions{Services: []string{contracts.ServiceImporter}})
	changes := check.Must(contracts.Apply(t.Context(), &unanswered{js, map[string]int{}}, want, contracts.ApplyOptions{}))(t)
	check.Same(t, "got[contracts.ActionCreate]", actions(changes)[contracts.ActionCreate], len(want))
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
			check.Is(t, check.Err(contracts.Apply(t.Context(), js, want, contracts.ApplyOptions{})), nil)
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
		check.Is(t, check.Err(js.CreateStream(t.Context(), config)), nil, file)
	}
	differences := compare(t, js, contracts.Assets(contracts.AssetOptions{}))
	check.That(t, differences == nil, "the files are not the declarations: %v", differences)
}

const root = "../.."

// TestGeneratedFilesAreCurrent fails when a declaration and its files differ: run `go generate` in pkg/contracts.
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
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
			continue
		}
		diff := cmp.Diff(string(want), string(got))
		check.That(t, diff == "", "%s differs from its declaration, run `go generate` in pkg/contracts\n-declared +file\n%s", name, diff)
	}
	for _, name := range found {
		check.That(t, files[name] != nil, "%s is not generated by anything", name)
	}
	check.That(t, slices.Contains(found, "deploy/nats/streams/EVENTS.json"), "the folders were not found")
}
