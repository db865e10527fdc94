package natstest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun"
)

// Mishap is what befalls one message from a process to the server.
type Mishap struct {
	// Answered says that the message arrives, and that what is lost is its answer. A message
	// that asks for none is spared.
	Answered bool

	// Dies says that the process is cut off for ever from then on, as one that has died.
	Dies bool

	// Restarts says that the server dies at that moment, and is started again.
	Restarts bool
}

// Mishaps are all that there are.
func Mishaps() []Mishap {
	return []Mishap{
		{}, {Answered: true}, {Restarts: true}, {Answered: true, Restarts: true}, {Dies: true}, {Answered: true, Dies: true},
	}
}

// String names it.
func (m Mishap) String() string {
	what := "a message is lost"
	if m.Answered {
		what = "an answer is lost"
	}

	switch {
	case m.Dies:
		return what + " with its process"
	case m.Restarts:
		return what + " with the server"
	}

	return what
}

// Wire is what is between a process and the server: one message on it meets with a mishap. It
// is for tests that have each message of some work meet with each mishap, one after the other,
// and measure how long it takes until the work is done all the same. In a Bubble that takes no
// time.
//
//	w := natstest.NewWire(t, srv, mishap)
//	start := func() { work(w.Connect()) }
//	start()
//	for n, struck := 1, true; struck; n++ {
//		w.Aim(n)
//		ask() // for the work
//		_, struck = w.Until(most, func() string { return unfinished() }, start)
//	}
type Wire struct {
	t      testing.TB
	mishap Mishap
	server *natsrun.Server

	mu     sync.Mutex
	dead   bool          // nothing passes
	left   int           // how many messages until the mishap, 0 for none
	proxy  *Proxy        // of the latest connection
	reply  string        // of the request whose answer is lost
	struck chan struct{} // closed when it has happened
	what   string        // it befell
}

// NewWire returns a Wire.
func NewWire(t testing.TB, server *natsrun.Server, mishap Mishap) *Wire {
	t.Helper()

	return &Wire{t: t, mishap: mishap, server: server, struck: make(chan struct{})}
}

// Connect returns the options of a connection through the wire, for a process that starts.
// The one before is cut off from then on.
func (w *Wire) Connect() []nats.Option {
	w.t.Helper()

	proxy := NewProxy(w.t, w.server)
	proxy.Filter(func(f Frame) Verdict { return w.judge(proxy, f) })

	w.mu.Lock()
	defer w.mu.Unlock()

	w.proxy, w.dead, w.reply = proxy, false, ""

	return []nats.Option{proxy.Through(), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}
}

// Aim has the n-th message from now on meet with the mishap.
func (w *Wire) Aim(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.left, w.struck = n, make(chan struct{})
}

// Until waits until open says that nothing is open, "", and reports whether there was the
// mishap. When there was, everything is brought up again first: next starts another process if
// the one before has died. took is how long something was open after that. The test fails when
// it is longer than most.
func (w *Wire) Until(most time.Duration, open func() string, next func()) (took time.Duration, struck bool) {
	w.t.Helper()

	const look = 500 * time.Millisecond

	up := time.Now()

	for left := "all"; left != ""; {
		<-time.After(look)

		left = open()

		select {
		case <-w.happened(struck):
			struck, left = true, "all"

			w.mend(next)

			up = time.Now()
		default:
		}

		if time.Since(up) > most {
			w.t.Fatalf("%s: %s\nafter %s there is open:\n%s", w.mishap, w.befell(), most, left)
		}
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	w.left = 0

	return time.Since(up), struck
}

// happened is closed by the mishap, and nil once that is known.
func (w *Wire) happened(known bool) <-chan struct{} {
	if known {
		return nil
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	return w.struck
}

func (w *Wire) befell() string {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.what
}

// mend has everything be up again.
func (w *Wire) mend(next func()) {
	w.t.Helper()

	switch {
	case w.mishap.Dies:
		next()
	case w.mishap.Restarts:
		if err := w.server.Restart(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}

		w.mu.Lock()
		proxy := w.proxy
		w.dead, w.reply = false, ""
		w.mu.Unlock()

		proxy.Heal()
	}
}

// judge says what becomes of a message on a connection.
func (w *Wire) judge(on *Proxy, f Frame) Verdict {
	w.mu.Lock()
	defer w.mu.Unlock()

	switch {
	case on != w.proxy, w.dead:
		return Lose
	case !f.FromClient && w.reply != "" && f.Subject == w.reply:
		w.reply = ""

		return Lose
	case !f.FromClient, w.left == 0, w.mishap.Answered && f.Reply == "":
		return Relay
	}

	w.left--
	if w.left > 0 {
		return Relay
	}

	w.what = fmt.Sprintf("%s %.200q", f.Subject, f.Payload())
	w.dead = w.mishap.Dies || w.mishap.Restarts
	close(w.struck)

	if !w.mishap.Answered {
		return Lose
	}

	w.reply = f.Reply

	return Relay
}
