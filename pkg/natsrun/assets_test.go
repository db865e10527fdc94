package natsrun_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

// Everything that is declared beside the configurations fits into what they
// allow, made by the user who makes it in production.
func TestDeclaredAssetsFitTheLimits(t *testing.T) {
	t.Parallel()

	t.Run("single", func(t *testing.T) {
		t.Parallel()

		users := natstest.NewUsers(t)
		srv := natstest.Server(t, func(c *natsrun.Config) { c.Users = users.Public })
		_, js := natstest.Connect(t, srv, users.As("admin"))
		createAssets(t, js, func(sc *jetstream.StreamConfig) { sc.Replicas = 1 })
	})

	t.Run("cluster", func(t *testing.T) {
		t.Parallel()

		users := natstest.NewUsers(t)
		c := natstest.Cluster(t, 3, func(c *natsrun.ClusterConfig) {
			c.Users = users.Public
			c.ClientOptions = append(c.ClientOptions, users.As("admin"))
		})
		_, js := natstest.ConnectURL(t, c.URLs(), users.As("admin"))
		createAssets(t, js, func(*jetstream.StreamConfig) {})
		settle(t, c)
	})
}

func createAssets(t *testing.T, js jetstream.JetStream, change func(*jetstream.StreamConfig)) {
	t.Helper()

	var files []string

	for _, dir := range []string{"streams", "buckets", "objects"} {
		found, err := filepath.Glob(filepath.Join(deployed, dir, "*.json"))
		if err != nil || len(found) == 0 {
			t.Fatalf("declared %s: got %d, %v", dir, len(found), err)
		}

		files = append(files, found...)
	}

	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		var sc jetstream.StreamConfig
		if err := json.Unmarshal(text, &sc); err != nil {
			t.Fatalf("%s: %v", file, err)
		}

		change(&sc)

		if err := natstest.UntilAnswered(t, func(ctx context.Context) error {
			_, err := js.CreateStream(ctx, sc)
			return err
		}); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
