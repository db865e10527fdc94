package test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// former are the sizes that the notifier's streams once had.
var former = map[string]int64{
	contracts.StreamNotifications: 2 << 30, "KV_" + contracts.BucketDeliveries: 512 << 20, "KV_" + contracts.BucketInbox: 1 << 30,
}

// small makes the streams of the notifier with their former sizes, and a row in one of them. It returns the declarations of now.
func small(t *testing.T, js jetstream.JetStream) []jetstream.StreamConfig {
	t.Helper()
	want := contracts.Assets(contracts.AssetOptions{Services: []string{contracts.ServiceNotifier}})
	for _, config := range want {
		if size, ok := former[config.Name]; ok {
			config.MaxBytes = size
		}
		check.OK(t, check.Err(js.CreateStream(t.Context(), config)))
	}
	check.OK(t, check.Err(js.Publish(t.Context(), "notify.plan.x", nil)))
	return want
}

func sizes(t *testing.T, js jetstream.JetStream) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	for info := range js.ListStreams(t.Context()).Info() {
		all[info.Config.Name] = info.Config.MaxBytes
		check.That(t, info.Config.Name != contracts.StreamNotifications || info.State.Msgs == 1, "%d messages are left of 1", info.State.Msgs)
	}
	return all
}

// The streams of an older deployment grow to what is declared now. One that an operator has made larger still stays so.
func TestApplyGrowsTheStreamsOfAnOlderDeployment(t *testing.T) {
	t.Parallel()
	_, js := natstest.Connect(t, natstest.Server(t))
	want := small(t, js)
	const larger = 2 << 30
	events, err := js.Stream(t.Context(), contracts.StreamEvents)
	check.OK(t, err)
	config := events.CachedInfo().Config
	config.MaxBytes = larger
	check.OK(t, check.Err(js.UpdateStream(t.Context(), config)))
	for _, dry := range []bool{true, false} {
		changes, err := contracts.Apply(t.Context(), js, want, contracts.ApplyOptions{DryRun: dry})
		got := actions(changes)
		check.That(t, err == nil && got[contracts.ActionUpdate] == len(former) && got[contracts.ActionKeep] == 1, "got %v, %v", got, err)
		now := sizes(t, js)
		for _, config := range want {
			expected := config.MaxBytes
			if size, ok := former[config.Name]; ok && dry {
				expected = size
			}
			if config.Name == contracts.StreamEvents {
				expected = larger
			}
			check.That(t, now[config.Name] == expected, "dry %t: %s has %d bytes, want %d", dry, config.Name, now[config.Name], expected)
		}
	}
}

// A limit that has no room for the larger size is named, with its value where the server says it. The stream keeps its size and its
// messages, and the others grow.
func TestApplyNamesTheLimitThatIsTooSmall(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		account, server string
		limit           string
		most            int64
	}{
		"largest stream": {account: "disk_max_stream_bytes: 14GB", server: "64GB", limit: "disk_max_stream_bytes", most: 14 << 30},
		"account":        {account: "max_file: 20GB", server: "64GB", limit: "max_file", most: 20 << 30},
		"server":         {account: "max_streams: 20", server: "20GB", limit: "max_file_store"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "server.conf")
			text := "jetstream { max_file_store: " + test.server + " }\naccounts { A { jetstream { " + test.account +
				" }, users: [ { user: u, password: p } ] } }\n"
			check.OK(t, os.WriteFile(file, []byte(text), 0o600))
			_, js := natstest.Connect(t, natstest.Server(t, func(c *natsrun.Config) { c.ConfigFile = file }), nats.UserInfo("u", "p"))
			want := small(t, js)
			changes, err := contracts.Apply(t.Context(), js, want, contracts.ApplyOptions{})
			check.Require(t, err != nil, "all have room")
			now := sizes(t, js)
			for i, change := range changes {
				_, grows := former[change.Stream]
				room, ok := errors.AsType[*contracts.RoomError](change.Err)
				switch {
				case !grows || change.Stream == "KV_"+contracts.BucketDeliveries:
					check.That(t, change.Err == nil && now[change.Stream] == want[i].MaxBytes,
						"%s has %d bytes, want %d: %v", change.Stream, now[change.Stream], want[i].MaxBytes, change.Err)
				case !ok || room.Stream != change.Stream || room.Size != want[i].MaxBytes || room.Limit != test.limit || room.Most != test.most:
					t.Errorf("%s: got %+v of %v", change.Stream, room, change.Err)
				case !strings.Contains(err.Error(), "stream "+change.Stream) || !strings.Contains(err.Error(), test.limit) ||
					now[change.Stream] != former[change.Stream]:
					t.Errorf("%s has %d bytes: %v", change.Stream, now[change.Stream], err)
				}
			}
			t.Log(err)
		})
	}
}
