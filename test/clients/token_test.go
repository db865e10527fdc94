package clients_test

import (
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier"
)

// A notifier takes the tokens that the programs of docs/clients.md sign.
func TestTokensThatTheDocumentedProgramsSign(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	for i, algorithm := range access.SignerAlgorithms() {
		name := []string{"shop-1", "shop-2"}[i]
		key := check.Must(access.AddSigner(file("keys.json"), name, algorithm))(t)
		check.OK(t, os.WriteFile(file(name+".jwk"), []byte(key), 0o600))
	}
	check.OK(t, os.WriteFile(file("rules.yaml"), []byte("version: 1\nevents: {}\n"), 0o600))
	program := file("token")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s", "-o", program, "../../examples/token").CombinedOutput()
	check.Require(t, err == nil, "%v: %s", err, out)
	nc, _ := natstest.Connect(t, natstest.Server(t))
	n := check.Must(notifier.Start(t.Context(), nc, notifier.Config{
		BaseConfig: service.BaseConfig{
			CreateAssets: true, Keys: file("keys.json"), Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler),
		},
		Rules: file("rules.yaml"),
	}))(t)
	t.Cleanup(func() { check.OK(t, n.Stop()) })
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	node := testbed.Node.Find(t)[0]
	for name, command := range map[string][]string{
		"Go, EdDSA": {program, file("shop-1.jwk")}, "Go, HS256": {program, file("shop-2.jwk")},
		"Node, EdDSA": {node, "../../examples/token/sign.mjs", file("shop-1.jwk")},
		"Node, HS256": {node, "../../examples/token/sign.mjs", file("shop-2.jwk")},
	} {
		token, err := exec.CommandContext(t.Context(), command[0], append(command[1:], "ada")...).Output()
		check.Require(t, err == nil, "%s: %v", name, err)
		for path, want := range map[string]int{"ada/inbox?type=CUSTOMER": 200, "ada/inbox?type=ADMIN": 403, "eve/inbox": 403} {
			r := check.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, n.URL()+"/v1/users/"+path, http.NoBody))(t)
			r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
			resp := check.Must(client.Do(r))(t)
			check.OK(t, resp.Body.Close())
			check.Equal(t, resp.StatusCode, want, name+" "+path)
		}
	}
}
