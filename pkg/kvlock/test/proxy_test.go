package kvlock_test

import (
	"bytes"
	"strings"
	"sync/atomic"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

// isWrite says that the frame writes the key.
func isWrite(f natstest.Frame, key string) bool {
	return f.FromClient && f.Subject == "$KV."+bucket+"."+key
}

// writes is isWrite of one key.
func writes(key string) func(natstest.Frame) bool {
	return func(f natstest.Frame) bool { return isWrite(f, key) }
}

// losing is a filter that loses what which says.
func losing(which func(natstest.Frame) bool) func(natstest.Frame) natstest.Verdict {
	return func(f natstest.Frame) natstest.Verdict {
		if which(f) {
			return natstest.Lose
		}
		return natstest.Relay
	}
}

// answerAsBefore replaces the leader's answers about keys by the first of them, n times after it: the leader was deposed
// and does not know.
func answerAsBefore(p *natstest.Proxy, n int) (start func()) {
	asked := map[string]bool{}
	var old []byte
	var started atomic.Bool
	p.Change(func(f natstest.Frame) []byte {
		if f.FromClient && strings.HasPrefix(f.Subject, "$JS.API.STREAM.MSG.GET.") {
			asked[f.Reply] = true
		}
		if f.FromClient || !asked[f.Subject] {
			return nil
		}
		if old == nil {
			old = bytes.Clone(f.Payload())
		}
		if !started.Load() || n == 0 {
			return nil
		}
		n--
		return f.With(old, 0)
	})
	return func() { started.Store(true) }
}

// answerWrites replaces the first answer to a write of key.
func answerWrites(p *natstest.Proxy, key, text string) {
	reply := ""
	p.Change(func(f natstest.Frame) []byte {
		switch {
		case isWrite(f, key) && reply == "":
			reply = f.Reply
		case !f.FromClient && f.Subject == reply:
			reply = "done"
			return f.With([]byte(text), 0)
		}
		return nil
	})
}

// lag makes every read of a replica find nothing, until stop is called.
func lag(p *natstest.Proxy) (stop func()) {
	asked := map[string]bool{}
	p.Change(func(f natstest.Frame) []byte {
		switch {
		case f.FromClient && strings.HasPrefix(f.Subject, "$JS.API.DIRECT.GET."):
			asked[f.Reply] = true
		case !f.FromClient && asked[f.Subject]:
			const none = "NATS/1.0 404 No Results\r\n\r\n"
			return f.With([]byte(none), len(none))
		}
		return nil
	})
	return func() { p.Change(nil) }
}
