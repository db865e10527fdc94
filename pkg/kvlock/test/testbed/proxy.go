package testbed

import (
	"bytes"
	"strings"
	"sync/atomic"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

// IsWrite reports whether the frame writes the key.
func IsWrite(f natstest.Frame, key string) bool {
	return f.FromClient && f.Subject == "$KV."+Bucket+"."+key
}

// Writes is IsWrite of one key.
func Writes(key string) func(natstest.Frame) bool {
	return func(f natstest.Frame) bool { return IsWrite(f, key) }
}

// AnswerAsBefore replaces the leader's answers about keys by the first of them, n times after it: the leader was deposed
// and does not know.
func AnswerAsBefore(p *natstest.Proxy, n int) (start func()) {
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

// AnswerWrites replaces the first answer to a write of key.
func AnswerWrites(p *natstest.Proxy, key, text string) {
	reply := ""
	p.Change(func(f natstest.Frame) []byte {
		switch {
		case IsWrite(f, key) && reply == "":
			reply = f.Reply
		case !f.FromClient && f.Subject == reply:
			reply = "done"
			return f.With([]byte(text), 0)
		}
		return nil
	})
}

// Lag makes every read of a replica find nothing, until stop is called.
func Lag(p *natstest.Proxy) (stop func()) {
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

// IsPush reports whether the frame pushes a change to a client.
func IsPush(f natstest.Frame) bool {
	return !f.FromClient && strings.HasPrefix(f.Subject, "rp."+Bucket+".")
}

// LosePushes is a filter that loses all pushes.
var LosePushes = natstest.Losing(IsPush)
