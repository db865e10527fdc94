package crash_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/expediter-io/expediter/internal/testbed/fastelection" // in every server process
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// speakers print their text and wait to be stopped. One with the text "fail" fails then.
var speakers = crash.Role[string]{Name: "speaker", Run: func(ctx context.Context, text string) error {
	fmt.Print(text) //nolint:forbidigo // to the test
	<-ctx.Done()
	if text == "fail\n" {
		return errors.New("as it was told")
	}
	return nil
}}

func TestMain(m *testing.M) { crash.Main(m, 1, speakers) }

// failing is a test that is to fail.
type failing struct {
	testing.TB

	cleanups []func()
	failed   bool
	log      strings.Builder
}

func (f *failing) Cleanup(do func()) { f.cleanups = append(f.cleanups, do) }
func (f *failing) Failed() bool      { return f.failed }
func (f *failing) Helper()           {}

func (f *failing) Output() io.Writer { return io.Discard }

func (f *failing) Errorf(format string, args ...any) {
	f.failed = true
	f.Logf(format, args...)
}

func (f *failing) Logf(format string, args ...any) { fmt.Fprintf(&f.log, format+"\n", args...) }

// end fails t unless f has failed, and its log has a text.
func (f *failing) end(t *testing.T, want ...string) {
	t.Helper()
	for _, do := range f.cleanups {
		do()
	}
	for _, text := range want {
		check.That(t, f.failed && strings.Contains(f.log.String(), text),
			"the test failed: %t, want true and %q in its log:\n%s", f.failed, text, f.log.String())
	}
}

// A process that ends in another way than it should fails its test, which shows what the process printed.
func TestWrongEndFails(t *testing.T) {
	t.Parallel()
	f := &failing{TB: t}
	p := speakers.Start(f, "fail\n")
	p.Line()
	p.Stop()
	f.end(t, "stop speaker fail", "as it was told", "at the end:\nfail\n")
	f = &failing{TB: t}
	p = speakers.Start(f, "ready\n")
	p.Line()
	check.ErrorIs(t, p.Process.Stop(), nil)
	p.Died()
	f.end(t, "was not killed")
}

// The network loses the chosen direction, and only that.
func TestNetworkCutsOneDirection(t *testing.T) {
	t.Parallel()
	for scheme, network := range map[string]string{"echo://": "tcp", "": "unix"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			listen := "127.0.0.1:0"
			if network == "unix" {
				listen = filepath.Join(crash.SocketDir(t), "socket")
			}
			l := check.Must(net.Listen(network, listen))(t)
			var echo sync.WaitGroup
			arrived := make(bytesOf, 10)
			t.Cleanup(echo.Wait)
			t.Cleanup(func() { _ = l.Close() })
			echo.Go(func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					echo.Go(func() {
						defer c.Close()
						_, _ = io.Copy(c, io.TeeReader(c, arrived)) // until it is closed
					})
				}
			})
			n := crash.NewNetwork(t, scheme+l.Addr().String())
			dial := func() net.Conn { return check.Must(net.Dial(network, strings.TrimPrefix(n.URLs, scheme)))(t) }
			buf := make([]byte, 1)
			echoes := func(c net.Conn, text string) {
				for _, want := range []byte(text) {
					check.OK(t, check.Err(c.Write([]byte{want})))
					_, err := io.ReadFull(c, buf)
					check.Require(t, err == nil && buf[0] == want && <-arrived == want, "got %q, %v; want %q", buf, err, want)
				}
			}
			for _, way := range []crash.Direction{crash.ToClient, crash.ToServer} {
				c := dial()
				echoes(c, "ab")
				n.Cut(way)
				check.ErrorIs(t, check.Err(c.Write([]byte("c"))), nil)
				if way == crash.ToClient {
					check.Equal(t, <-arrived, 'c', "at the server")
				}
				n.Heal()
				size, err := c.Read(buf)
				check.That(t, size == 0 && err != nil, "read %q, %v through a cut", buf[:size], err)
				check.OK(t, c.Close())
			}
			c := dial()
			echoes(c, "d") // healed
			check.Equal(t, len(arrived), 0, "bytes that came through a cut to the server")
			check.OK(t, c.Close())
		})
	}
}

// bytesOf has the bytes that were written to it.
type bytesOf chan byte

func (b bytesOf) Write(p []byte) (int, error) {
	for _, one := range p {
		b <- one
	}
	return len(p), nil
}

// A killed process leaves an effect that is not recorded, and one that was to be recorded before it; the judge tells them apart.
func TestJudge(t *testing.T) {
	t.Parallel()
	log := crash.NewLog(t)
	p := check.Must(crash.OpenLog(log.Path(), "p1"))(t)
	q := check.Must(crash.OpenLog(log.Path(), "p2"))(t)
	write := func(l *crash.Log, kind crash.Kind, ids ...string) {
		t.Helper()
		for _, id := range ids {
			check.OK(t, l.Write(kind, id))
		}
	}
	write(p, crash.Started, "a/1", "b/1", "a/3", "c/1")
	write(p, crash.Effect, "a/1", "b/1", "a/3")
	write(p, crash.Recorded, "a/1")
	check.OK(t, log.Inject("process killed", "p1"))
	write(p, crash.Effect, "a/1") // it was frozen
	write(q, crash.Started, "b/1", "a/1")
	write(q, crash.Effect, "b/1", "a/1")
	write(q, crash.Recorded, "b/1")
	check.OK(t, p.Close())
	check.OK(t, q.Close())
	before := func(id string) string { return map[string]string{"a/3": "a/2"}[id] }
	got := check.Must(log.Judge(slices.Values([]string{"a/1", "a/2", "a/3", "b/1"}), before))(t)
	check.Equal(t, len(got.TakeOvers), 1, "a/1 was over, b/1 was taken over, nobody took a/3 and c/1")
	check.Equal(t, got, crash.Result{
		Wanted: 4, Lost: []string{"a/2"}, Repeated: []string{"a/1"}, Unrecorded: 2, OutOfOrder: []string{"a/3", "a/3"},
		TakeOvers: got.TakeOvers, Faults: map[string]int{"process killed": 1}, History: got.History,
	})
	check.ErrorContains(t, got.Err(), `1 lost: ["a/2"]`, `1 repeated after their record: ["a/1"]`)
	var history []string
	for _, e := range got.History {
		history = append(history, fmt.Sprint(e.Process, " ", e.Kind, " ", e.ID))
	}
	check.Equal(t, strings.Join(history, ", "), "p1 started a/1, p1 started a/3, p1 effect a/1, p1 effect a/3, p1 recorded a/1, "+
		"p1 fault process killed, p1 effect a/1, p2 started a/1, p2 effect a/1")
	var sum crash.Result
	sum.Add(got)
	sum.Add(got)
	check.That(t, sum.Wanted == 8 && sum.Faults["process killed"] == 2 && len(sum.TakeOvers) == 2, "two results are %+v", sum)
}

// Each rule of the judge decides about one history. An entry is a process, what it wrote and an id; "p fault" is a fault of p.
func TestRulesOfTheJudge(t *testing.T) {
	t.Parallel()
	once := "p started a, p effect a, p recorded a"
	for name, tt := range map[string]struct {
		history string
		want    crash.Result
	}{
		"once":                           {once, crash.Result{}},
		"started, and never happened":    {"p started a", crash.Result{Lost: []string{"a"}}},
		"never started":                  {"", crash.Result{Lost: []string{"a"}}},
		"nobody wanted it":               {once + ", p effect x", crash.Result{Unwanted: []string{"x"}}},
		"again, by another":              {once + ", q started a, q effect a", crash.Result{Repeated: []string{"a"}}},
		"again, by itself":               {once + ", p started a, p effect a", crash.Result{Repeated: []string{"a"}}},
		"again, by one that began later": {"p started a, q started a, p effect a, p recorded a, r started a, r effect a", crash.Result{Repeated: []string{"a"}}},
		"again, by one that never began": {once + ", q effect a", crash.Result{Repeated: []string{"a"}}},
		"again, begun before the record": {"p started a, q started a, p effect a, p recorded a, q effect a", crash.Result{Unrecorded: 1}},
		"again, without a record":        {"p started a, p effect a, q started a, q effect a", crash.Result{Unrecorded: 1}},
		"taken over":                     {"p started a, p fault, q started a, q effect a", crash.Result{TakeOvers: make([]time.Duration, 1)}},
		"not taken over":                 {"p started a, p fault, p effect a", crash.Result{}},
		"begun too early":                {"p started c, p started b, p effect b, p effect c, " + once, crash.Result{OutOfOrder: []string{"c"}}},
		"happened too early":             {"p effect c, p effect b, " + once, crash.Result{OutOfOrder: []string{"c"}}},
	} {
		log := crash.NewLog(t)
		processes := map[string]*crash.Log{}
		kinds := map[string]crash.Kind{"started": crash.Started, "effect": crash.Effect, "recorded": crash.Recorded}
		for entry := range strings.SplitSeq(tt.history, ", ") {
			words := strings.Fields(entry)
			switch len(words) {
			case 2:
				check.OK(t, log.Inject("process frozen", words[0]))
			case 3:
				l := processes[words[0]]
				if l == nil {
					l = check.Must(crash.OpenLog(log.Path(), words[0]))(t)
					processes[words[0]] = l
				}
				check.OK(t, l.Write(kinds[words[1]], words[2]))
			}
		}
		for _, l := range processes {
			check.OK(t, l.Close())
		}
		wanted := []string{"a"}
		if strings.Contains(tt.history, " c") {
			wanted = []string{"a", "b", "c"}
		}
		got := check.Must(log.Judge(slices.Values(wanted), func(id string) string { return map[string]string{"c": "b"}[id] }))(t)
		wrong := len(got.Lost) + len(got.Unwanted) + len(got.Repeated) + len(got.OutOfOrder)
		check.Equal(t, got.Err() != nil, wrong > 0, name+": error")
		var sum crash.Result
		sum.Add(got)
		sum.Add(got)
		check.Equal(t, len(sum.Lost)+len(sum.Unwanted)+len(sum.Repeated)+len(sum.OutOfOrder), 2*wrong, name+": of two")
		check.Equal(t, len(got.TakeOvers), len(tt.want.TakeOvers), name+": take-overs")
		got.Wanted, got.History, got.Faults, got.TakeOvers = 0, nil, nil, tt.want.TakeOvers
		check.Equal(t, got, tt.want, name)
	}
}

// Faults of a group and of a server happen, are in the log, and leave a group that works.
func TestFaults(t *testing.T) {
	t.Parallel()
	log, on := crash.NewLog(t), crash.MortalServer(t)
	group := crash.NewGroup(t, log, on.URL, 2, func(_, _ string) *crash.Process { return speakers.Start(t, "ready\n") })
	faults := slices.Concat(group.Faults(10*time.Millisecond), on.Faults(log, 10*time.Millisecond, "ANY"))
	r := crash.Random(t)(0)
	for _, f := range faults {
		check.ErrorIs(t, f.Do(t.Context(), r), nil, f.Name)
	}
	group.Stop()
	got := check.Must(log.Judge(func(func(string) bool) {}, nil))(t)
	for _, f := range faults {
		check.Equal(t, got.Faults[f.Name], 1, f.Name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	injected := 0
	check.OK(t, crash.Inject(ctx, r, time.Microsecond, crash.Fault{Name: "last", Do: func(context.Context, *rand.Rand) error {
		injected++
		if injected == 3 {
			cancel()
		}
		return nil
	}}))
	check.Equal(t, injected, 3)
}
