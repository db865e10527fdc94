package backup

import (
	"bytes"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// A restore was cut off when the server had all of a stream, which stored it only after the next restore had looked for it.
func TestRestoreBesideOneThatWasCutOff(t *testing.T) {
	t.Parallel()
	_, from := applied(t)
	fill(t, from)
	c := config(from, t.TempDir())
	must(t, Write(t.Context(), c, nothing))
	srv, to := listening(t)
	c.JS = to
	must(t, Restore(t.Context(), c, nothing))
	stream, err := to.Stream(t.Context(), "KV_enrich")
	must(t, err)
	left := stream.CachedInfo().Config
	left.Metadata[restored] += unfinished
	must(t, check.Err(to.UpdateStream(t.Context(), left)))
	must(t, to.DeleteStream(t.Context(), "KV_locks"))

	proxy := natstest.NewProxy(t, srv)
	_, c.JS = natstest.Connect(t, srv, proxy.Through())
	looks := map[string]int{}
	proxy.Change(func(m natstest.Frame) []byte {
		if m.FromClient && m.Subject == "$JS.API.STREAM.INFO.KV_enrich" {
			looks["asked"]++
			if looks["asked"] <= 2 {
				looks[m.Reply]++
			}
		} else if looks[m.Subject] > 0 {
			const none = `{"type":"io.nats.jetstream.api.v1.stream_info_response","error":{"code":404,"err_code":10059,"description":"stream not found"}}`
			return m.With([]byte(none), 0)
		}
		return nil
	})
	must(t, Restore(t.Context(), c, nothing))
	proxy.Change(nil)
	check.That(t, looks["asked"] > 2, "asked %d times", looks["asked"])
	for _, name := range []string{"KV_enrich", "KV_locks"} {
		was, is := contents(t, from, name), contents(t, to, name)
		check.That(t, was == is, "%s was\n%sand is\n%s", name, was, is)
	}
	stream, err = to.Stream(t.Context(), "KV_enrich")
	must(t, err)
	check.That(t, !strings.HasSuffix(stream.CachedInfo().Config.Metadata[restored], unfinished), "it is not finished")
}

// A part that reached no server is sent again, and each request that can be repeated is repeated when its answer is lost.
func TestBackupAndRestoreThroughLostMessages(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		_, direct := natstest.Connect(t, srv)
		proxy := natstest.NewProxy(t, srv)
		_, through := natstest.Connect(t, srv, proxy.Through())
		c := Config{Dir: t.TempDir(), JS: through, Services: []string{contracts.ServiceLock}}
		must(t, check.Err(contracts.Apply(t.Context(), direct, contracts.Assets(contracts.AssetOptions{Services: c.Services}), contracts.ApplyOptions{})))
		publish(t, direct, "$KV.locks.a", "1")
		was := contents(t, direct, "KV_locks")

		parts, lost := 0, map[string]int{}
		proxy.Change(func(m natstest.Frame) []byte {
			if !m.FromClient || !strings.HasPrefix(m.Subject, "$JS.SNAPSHOT.RESTORE.KV_locks.") {
				return nil
			}
			parts++
			if parts > 1 {
				return nil
			}
			return bytes.Replace(m.Raw, []byte(m.Subject), []byte("nowhere"), 1)
		})
		proxy.Hit(func(m natstest.Frame) bool {
			kind, ok := strings.CutPrefix(m.Subject, "$JS.API.STREAM.")
			if !ok || strings.HasPrefix(kind, "RESTORE.") {
				return false
			}
			lost[kind]++
			return lost[kind] == 1
		}, natstest.ReplyLost, 100)
		must(t, Write(t.Context(), c, nothing))
		for _, name := range present(c.Services) {
			must(t, direct.DeleteStream(t.Context(), name))
		}
		clear(lost)
		must(t, Restore(t.Context(), c, nothing))
		is := contents(t, direct, "KV_locks")
		check.That(t, parts > 2 && was == is, "%d parts: it was\n%sand is\n%s", parts, was, is)
	})
}
