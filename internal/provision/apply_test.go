package provision_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

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
