package natstest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun"
)

// Mishap is a fault that hits one message from a process to the server.
type Mishap struct {
	// Answered: the message arrives, and its answer is lost. A message without a reply subject is not hit.
	Answered bool

	// Dies: the process is cut off for ever from then on, as if it had died.
	Dies bool

	// Restarts: the server dies at that moment, and is started again.
	Restarts bool
}

// Mishaps returns all mishaps.
func Mishaps() []Mishap {
	return []Mishap{
		{}, {Answered: true}, {Restarts: true}, {Answered: true, Restarts: true}, {Dies: true}, {Answered: true, Dies: true},
	}
}

// String returns the name of the mishap.
func (m Mishap) String() string {
	name := "a message is lost"
	if m.Answered {
		name = "an answer is lost"
	}
	switch {
	case m.Dies:
		return name + " with its process"
	case m.Restarts:
		return name + " with the server"
	}
	return name
}

// Wire is the connection between a process and the server, on which one message is hit by a mishap. It is for tests that apply each mishap
// to each message of some work, one after the other, and measure the time until the work is done all the same. In a Bubble that takes no
// real time.
//
//	w := natstest.NewWire(t, srv, mishap)
//	start := func() { w.Stops(work(w.Connect())) }
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
	left   int           // the number of messages until the mishap, 0 for none
	proxy  *Proxy        // of the latest connection
	reply  string        // the reply subject of the request whose answer is lost
	stops  []func()      // the stop functions of the started processes
	struck chan struct{} // closed when the mishap has happened
	hit    string        // the message that was hit
}

// NewWire returns a Wire.
func NewWire(t testing.TB, server *natsrun.Server, mishap Mishap) *Wire {
	t.Helper()
	return &Wire{t: t, mishap: mishap, server: server, struck: make(chan struct{})}
}

// Connect returns the options of a connection through the wire, for a process that starts. It cuts off the previous connection.
func (w *Wire) Connect() []nats.Option {
	w.t.Helper()
	proxy := NewProxy(w.t, w.server)
	proxy.Filter(func(f Frame) Verdict { return w.judge(proxy, f) })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.proxy, w.dead, w.reply = proxy, false, ""
	return []nats.Option{proxy.Through(), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}
}

// Stops sets the function that stops the process that was started last. Aim calls it once another process runs, so that a dead process
// takes no more time.
func (w *Wire) Stops(process func()) { w.stops = append(w.stops, process) }

// Aim makes the mishap hit the n-th message from now on.
func (w *Wire) Aim(n int) {
	for ; len(w.stops) > 1; w.stops = w.stops[1:] {
		w.stops[0]()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left, w.struck = n, make(chan struct{})
}

// Until waits until open returns "", which means that no work is left, and reports in struck whether the mishap
// happened. After a mishap it first repairs the connection and the server, and calls next to start another process if the last one has
// died. took is the time after that until no work was left. The test fails when took is longer than most.
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

// happened returns a channel that the mishap closes, or nil if known is true.
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
	return w.hit
}

// mend repairs the connection, the server and the process.
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

// judge returns the verdict for a message on a connection.
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
	w.hit = fmt.Sprintf("%s %.200q", f.Subject, f.Payload())
	w.dead = w.mishap.Dies || w.mishap.Restarts
	close(w.struck)
	if !w.mishap.Answered {
		return Lose
	}
	w.reply = f.Reply
	return Relay
}

// Frame is one message on its way through a Proxy.
type Frame struct {
	FromClient bool   // and to the server
	Raw        []byte // the whole message as on the wire, including its line
	Reply      string
	Subject    string

	subscribes bool
}

// Payload returns the payload of the message, after its headers if it has any.
func (f Frame) Payload() []byte {
	_, payload, _ := bytes.Cut(f.Raw, []byte("\r\n"))
	return bytes.TrimSuffix(payload, []byte("\r\n"))
}

// With returns a message from the server to the same subscription with other content, for Proxy.Change. The first headers bytes of the
// content are headers.
func (f Frame) With(content []byte, headers int) []byte {
	words := strings.Fields(string(f.Raw[:bytes.IndexByte(f.Raw, '\n')]))
	line := fmt.Sprintf("MSG %s %s %d", words[1], words[2], len(content))
	if headers > 0 {
		line = fmt.Sprintf("HMSG %s %s %d %d", words[1], words[2], headers, len(content))
	}
	return fmt.Appendf(nil, "%s\r\n%s\r\n", line, content)
}

// readFrame reads one line, and the payload after it if the line announces one. Lines that are not those of messages have no subject.
func readFrame(r *bufio.Reader, fromClient bool) (Frame, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return Frame{}, fmt.Errorf("read a line: %w", err)
	}
	f := Frame{FromClient: fromClient, Raw: line}
	words := strings.Fields(string(line))
	if len(words) == 0 {
		return f, nil
	}
	f.subscribes = fromClient && words[0] == "SUB"
	var fixed int // the number of words of a line without a reply
	switch words[0] {
	case "PUB":
		fixed = 3
	case "HPUB", "MSG":
		fixed = 4
	case "HMSG":
		fixed = 5
	default:
		return f, nil
	}
	if len(words) < fixed {
		return Frame{}, fmt.Errorf("%w: %q", errNoFrame, line)
	}
	f.Subject = words[1]
	if len(words) > fixed {
		f.Reply = words[2]
		if !fromClient {
			f.Reply = words[3]
		}
	}
	size, err := strconv.Atoi(words[len(words)-1])
	if err != nil || size < 0 {
		return Frame{}, fmt.Errorf("%w: %q", errNoFrame, line)
	}
	payload := make([]byte, size+len("\r\n"))
	if _, err := io.ReadFull(r, payload); err != nil {
		return Frame{}, fmt.Errorf("read a payload of %d bytes: %w", size, err)
	}
	f.Raw = append(f.Raw, payload...)
	return f, nil
}

var errNoFrame = errors.New("not a line of the protocol")
