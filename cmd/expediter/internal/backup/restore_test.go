package backup

import (
	"strings"
	"testing"

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
