package enrich

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service/access"
)

// callers returns the contexts of requests of two callers with keys, and of one without a name.
func callers(t *testing.T) [3]context.Context {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	var requests [2]*http.Request
	for i := range requests {
		secret, err := access.Add(path, access.Key{Name: fmt.Sprint("caller-", i), Scopes: []access.Scope{access.Publish}})
		check.OK(t, err)
		requests[i] = httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/enrich", http.NoBody)
		requests[i].Header.Set("Authorization", "Bearer "+secret)
	}
	keys, err := access.Open("enricher", path, slog.New(slog.DiscardHandler))
	check.OK(t, err)
	admit := func(r *http.Request) context.Context {
		admitted, err := access.NewGuard(keys, nil).Admit(r, access.Own(access.Publish))
		check.OK(t, err)
		return admitted.Context()
	}
	return [3]context.Context{admit(requests[0]), admit(requests[1]), t.Context()}
}

// TestRequestOfAnotherCaller: only the caller that made a request adds places to it.
func TestRequestOfAnotherCaller(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &far{})
	for n, ctx := range callers(t) {
		_, err := i.Enrich(ctx, contracts.EnrichRequest{RequestID: "req-1", Results: places(2 * (n + 1))[2*n:]})
		taken := n > 0
		check.That(t, errors.Is(err, ErrRequestTaken) == taken && Problem(err).Status == http.StatusConflict == taken, "caller %d: %v", n, err)
	}
	record, err := i.load(t.Context(), "req-1")
	check.That(t, err == nil && len(record.Jobs) == 2, "%d places, %v, want those of the first caller", len(record.Jobs), err)
}

// TestRequestsAreBounded: a record takes no more places than it may have, whatever id is used again.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &far{})
	all := places(maxRecorded + 1)
	for from := 0; from < maxRecorded; from += contracts.MaxResults {
		i.ask(t, "req-1", all[from:from+contracts.MaxResults])
	}
	i.ask(t, "req-1", all[:3]) // adds nothing
	check.Is(t, check.Err(i.Enrich(t.Context(), contracts.EnrichRequest{RequestID: "req-1", Results: all[maxRecorded:]})), ErrRequestFull)
	resp := i.ask(t, "req-2", all[maxRecorded:])
	check.That(t, resp.Pending == 1 && resp.Skipped == "", "under another id: %+v", resp)
}

// TestAnswerWhileTheConnectionHangs: the client library waits, whatever the context, when the server takes nothing. The answer comes
// all the same.
func TestAnswerWhileTheConnectionHangs(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	proxy := natstest.NewProxy(t, srv)
	i := newInstanceOn(t, srv, &far{}, []nats.Option{proxy.Through()}, func(cfg *Config) { cfg.StoreTimeout = time.Second })
	open := hang(proxy)
	defer open()
	began := time.Now()
	resp := i.ask(t, "req-1", places(100))
	if took := time.Since(began); took > 30*time.Second { // the library gives up after a minute
		t.Errorf("answered after %s", took)
	}
	check.That(t, resp.Pending == 100 && resp.Skipped == contracts.SkippedStoreDown, "%d pending, skipped %q", resp.Pending, resp.Skipped)
}

// hang stops what clients send on its way, until open.
func hang(proxy *natstest.Proxy) (open func()) {
	gate := make(chan struct{})
	proxy.Filter(func(natstest.Frame) natstest.Verdict {
		<-gate
		return natstest.Relay
	})
	return func() { close(gate) }
}
