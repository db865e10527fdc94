package kvlock_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// proxy stands between one client and the server. It understands as much of the protocol as it needs to lose, repeat and
// count single messages.
type proxy struct {
	server nats.InProcessConnProvider

	mu     sync.Mutex
	delay  time.Duration      // of each answer
	down   bool               // refuses new connections
	hole   bool               // takes everything, and passes nothing on
	change func(frame) []byte // instead of the frame; nil leaves it
	filter func(frame) verdict
	links  []net.Conn
	subs   int
	wg     sync.WaitGroup
}

// frame is one message on the wire.
type frame struct {
	fromClient bool
	subscribes bool
	subject    string // "" for anything but a message
	reply      string
	raw        []byte
}

type verdict int

const (
	relay verdict = iota
	lose
	twice
)

func newProxy(t testing.TB, server nats.InProcessConnProvider) *proxy {
	t.Helper()
	p := &proxy{server: server}
	t.Cleanup(func() {
		p.cut()
		p.wg.Wait()
	})
	return p
}

// through makes a connection go through the proxy.
func (p *proxy) through() nats.Option { return nats.InProcessServer(p) }

// InProcessConn implements nats.InProcessConnProvider.
func (p *proxy) InProcessConn() (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return nil, net.ErrClosed
	}
	up, err := p.server.InProcessConn()
	if err != nil {
		return nil, err
	}
	client, near := net.Pipe()
	p.links = append(p.links, near, up)
	p.wg.Go(func() { p.forward(near, up, true) })
	p.wg.Go(func() { p.forward(up, near, false) })
	return client, nil
}

// set decides about every message from now on.
func (p *proxy) set(filter func(frame) verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.filter = filter
}

// partition loses everything on the connections there are, without closing them, and refuses new ones. heal lets new
// ones in and closes the old.
func (p *proxy) partition() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hole, p.down = true, true
}

func (p *proxy) heal() {
	p.cut()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hole, p.down = false, false
}

// cut closes all connections, and refuses new ones.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	for _, c := range p.links {
		_ = c.Close()
	}
	p.links = nil
}

func (p *proxy) late(f frame) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.fromClient || f.subject == "" {
		return 0
	}
	return p.delay
}

// slow delays answers from now on.
func (p *proxy) slow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

func (p *proxy) changed(f frame) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.change == nil || f.subject == "" {
		return nil
	}
	return p.change(f)
}

// answerAsBefore replaces the leader's answers about keys by the first of them, n times after it: the leader was deposed
// and does not know.
func (p *proxy) answerAsBefore(n int) (start func()) {
	asked := map[string]bool{}
	var old []byte
	started := false
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change = func(f frame) []byte {
		if f.fromClient && strings.HasPrefix(f.subject, "$JS.API.STREAM.MSG.GET.") {
			asked[f.reply] = true
		}
		if f.fromClient || !asked[f.subject] {
			return nil
		}
		line, payload, _ := bytes.Cut(f.raw, []byte("\r\n"))
		if old == nil {
			old = bytes.Clone(payload)
		}
		if !started || n == 0 {
			return nil
		}
		n--
		words := strings.Fields(string(line))
		words[len(words)-1] = strconv.Itoa(len(old) - 2)
		return append([]byte(strings.Join(words, " ")+"\r\n"), old...)
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		started = true
	}
}

// answerWrites replaces the first answer to a write of key.
func (p *proxy) answerWrites(key, text string) {
	reply := ""
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change = func(f frame) []byte {
		switch {
		case isWrite(f, key) && reply == "":
			reply = f.reply
		case !f.fromClient && f.subject == reply:
			reply = "done"
			return f.with(text, 0)
		}
		return nil
	}
}

// lag makes every read of a replica find nothing, until stop is called.
func (p *proxy) lag() (stop func()) {
	asked := map[string]bool{}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change = func(f frame) []byte {
		switch {
		case f.fromClient && strings.HasPrefix(f.subject, "$JS.API.DIRECT.GET."):
			asked[f.reply] = true
		case !f.fromClient && asked[f.subject]:
			const none = "NATS/1.0 404 No Results\r\n\r\n"
			return f.with(none, len(none))
		}
		return nil
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.change = nil
	}
}

// with is a message for the same subscription with other content, of which the first bytes are headers.
func (f frame) with(content string, headers int) []byte {
	words := strings.Fields(string(f.raw[:bytes.IndexByte(f.raw, '\n')]))
	line := fmt.Sprintf("MSG %s %s %d", words[1], words[2], len(content))
	if headers > 0 {
		line = fmt.Sprintf("HMSG %s %s %d %d", words[1], words[2], headers, len(content))
	}
	return []byte(line + "\r\n" + content + "\r\n")
}

// subscriptions is how many the client has made.
func (p *proxy) subscriptions() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.subs
}

func (p *proxy) judge(f frame) verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.subscribes {
		p.subs++
	}
	switch {
	case p.hole:
		return lose
	case p.filter == nil || f.subject == "":
		return relay
	default:
		return p.filter(f)
	}
}

func (p *proxy) forward(from, to net.Conn, fromClient bool) {
	defer from.Close()
	defer to.Close()
	r := bufio.NewReaderSize(from, 64<<10)
	for {
		f, err := readFrame(r, fromClient)
		if err != nil {
			return
		}
		n := 1
		switch p.judge(f) {
		case lose:
			n = 0
		case twice:
			n = 2
		case relay:
		}
		if changed := p.changed(f); changed != nil {
			f.raw = changed
		}
		if d := p.late(f); d > 0 {
			pass(d) // in fake time only
		}
		if _, err := to.Write(bytes.Repeat(f.raw, n)); err != nil {
			return
		}
	}
}

// readFrame reads one line, and the payload after it if it announces one.
func readFrame(r *bufio.Reader, fromClient bool) (frame, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return frame{}, err
	}
	f := frame{fromClient: fromClient, raw: line}
	words := strings.Fields(string(line))
	if len(words) == 0 {
		return f, nil
	}
	f.subscribes = fromClient && words[0] == "SUB"
	var fixed int // words that are there without a reply
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
	f.subject = words[1]
	if len(words) > fixed {
		f.reply = words[2]
		if !fromClient {
			f.reply = words[3]
		}
	}
	size, err := strconv.Atoi(words[len(words)-1])
	if err != nil {
		return f, err
	}
	payload := make([]byte, size+2)
	if _, err := io.ReadFull(r, payload); err != nil {
		return f, err
	}
	f.raw = append(f.raw, payload...)
	return f, nil
}

// isWrite says that the frame writes the key.
func isWrite(f frame, key string) bool { return f.fromClient && f.subject == "$KV."+bucket+"."+key }

// fault happens to the first n writes of a key.
type fault string

const (
	replyLost      fault = "applied, reply lost"
	writeLost      fault = "not applied, time-out"
	refusedApplied fault = "applied, but refused"
)

// hit makes the fault happen to the next n writes of key.
func (p *proxy) hit(key string, how fault, n int) {
	first := map[string]bool{} // replies to lose once
	p.set(func(f frame) verdict {
		switch {
		case isWrite(f, key) && n > 0:
			n--
			switch how {
			case writeLost:
				return lose
			case replyLost:
				first[f.reply] = true
			case refusedApplied: // the first is applied, and the answer to the second, a refusal, is the one that comes
				first[f.reply] = true
				return twice
			}
		case !f.fromClient && first[f.subject]:
			delete(first, f.subject)
			return lose
		}
		return relay
	})
}
