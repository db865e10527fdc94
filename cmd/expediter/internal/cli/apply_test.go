package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

// The server does not answer a user who may not ask. Apply names what was denied, and does not go on to wait for each of the
// other streams.
func TestApplyStopsAtADenial(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t, func(c *natsrun.Config) {
		c.Listen = true
		natsrun.ChangeOptions(c, func(o *server.Options) {
			o.Users = []*server.User{{Username: "u", Password: "p", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: []string{"$JS.API.STREAM.INFO.AUDIT", "$JS.API.STREAM.CREATE.AUDIT", "$JS.API.STREAM.INFO.DEAD", "$JS.API.STREAM.INFO.ENRICH_JOBS"}},
			}}}
		})
	})
	var stdout, stderr bytes.Buffer
	code := Run(t.Context(), Config{
		Getenv: func(string) string { return "" }, Stderr: &stderr, Stdin: strings.NewReader(""), Stdout: &stdout,
	}, []string{"apply", "--server", strings.Replace(srv.URL(), "//", "//u:p@", 1)})
	for _, want := range []string{"needs an administrator's permissions", "$JS.API.STREAM.CREATE.DEAD"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("it does not say %q: %s", want, stderr.String())
		}
	}
	if code != ExitUnavailable || strings.Contains(stdout.String(), "ENRICH_JOBS") {
		t.Errorf("it ended with %d, and went on: %s", code, stdout.String())
	}
}
