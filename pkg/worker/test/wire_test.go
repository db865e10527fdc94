package test

import (
	"strings"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

// body is the payload of a message without headers.
func body(f natstest.Frame) string { return string(f.Payload()) }

// dieAt cuts the client off, for good, at the first message that matches: what a process
// that is killed there would not send. The channel is closed then.
func dieAt(p *natstest.Proxy, moment func(natstest.Frame) bool) <-chan struct{} {
	dead := make(chan struct{})

	p.Filter(func(f natstest.Frame) natstest.Verdict {
		if !moment(f) {
			return natstest.Relay
		}

		close(dead)
		return natstest.Sever
	})
	return dead
}

// loseAnswer loses the answer to the first message that matches.
func loseAnswer(p *natstest.Proxy, matches func(natstest.Frame) bool) {
	reply := ""

	p.Filter(func(f natstest.Frame) natstest.Verdict {
		switch {
		case f.FromClient && reply == "" && matches(f):
			reply = f.Reply
		case !f.FromClient && reply != "" && f.Subject == reply:
			reply = "-" // the one is lost
			return natstest.Lose
		}
		return natstest.Relay
	})
}

// requests are those to subjects with the prefix.
func requests(prefix string) func(natstest.Frame) bool {
	return func(f natstest.Frame) bool { return f.Reply != "" && strings.HasPrefix(f.Subject, prefix) }
}
