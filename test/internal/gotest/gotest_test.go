package gotest

import (
	"errors"
	"io"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// captured is the output of go test -json of packages that fail in all ways, without times. What printed it is in the output.
func captured(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/stream.json")
	check.OK(t, err)
	return string(text)
}

func TestFailures(t *testing.T) {
	t.Parallel()
	packages, err := Read(strings.NewReader(captured(t)), nil, nil)
	check.OK(t, err)
	got := map[string]string{}
	for _, p := range packages {
		var failures []string
		for _, f := range p.Failures() {
			failures = append(failures, f.String())
		}
		got[p.Path] = strings.Join(failures, ", ")
	}
	if want := map[string]string{
		"fake/build":   "(did not build)",
		"fake/gopanic": "(panicked)", // in a goroutine, while two tests were under way
		"fake/killed":  "TestA (killed)",
		"fake/leak":    "(failed outside of its tests)",
		"fake/none":    "",
		"fake/ok":      "",
		"fake/panics":  "TestB (panicked)",
		"fake/skip":    "",
		"fake/sub":     "TestA/x_y",
		"fake/timeout": "TestA (timed out)",
	}; !maps.Equal(got, want) {
		t.Errorf("failures are %q, want %q", got, want)
	}
}

func TestDigest(t *testing.T) {
	t.Parallel()
	var got, log strings.Builder
	passed, err := Digest(strings.NewReader(captured(t)), &got, &log)
	if err != nil || passed {
		t.Errorf("passed %v, error %v: want a failure", passed, err)
	}
	want, err := os.ReadFile("testdata/digest.txt")
	check.OK(t, err)
	if got.String() != string(want) {
		t.Errorf("the digest is not that of testdata/digest.txt:\n%s", &got)
	}
	packages, err := Read(strings.NewReader(captured(t)), nil, nil)
	check.OK(t, err)
	for _, p := range packages {
		if !strings.Contains(log.String(), p.Output()) {
			t.Errorf("the log is without the output of %s", p.Path)
		}
	}
}

// Of packages that pass there is only the line that go test prints for each.
func TestDigestOfASuccess(t *testing.T) {
	t.Parallel()
	const events = `{"Action":"start","Package":"fake/a"}
{"Action":"output","Package":"fake/a","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"fake/a","Test":"TestA","Output":"    a_test.go:1: one\n        two\n"}
{"Action":"output","Package":"fake/a","Test":"TestA","Output":"--- PASS: TestA (0.00s)\n"}
{"Action":"pass","Package":"fake/a","Test":"TestA"}
{"Action":"output","Package":"fake/a","Output":"PASS\n"}
{"Action":"output","Package":"fake/a","Output":"ok  \tfake/a\t0.1s\n"}
{"Action":"pass","Package":"fake/a"}
`
	var got strings.Builder
	passed, err := Digest(strings.NewReader(events), &got, io.Discard)
	if want := "ok  \tfake/a\t0.1s\n"; err != nil || !passed || got.String() != want {
		t.Errorf("passed %v, error %v, %q: want %q", passed, err, got.String(), want)
	}
}

// A skip that is read from the cache does not say that the program is still missing.
func TestDigestOfACachedSkip(t *testing.T) {
	t.Parallel()
	const events = `{"Action":"output","Package":"fake/a","Test":"TestA","Output":"    a_test.go:1: no network\n"}
{"Action":"output","Package":"fake/a","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}
{"Action":"skip","Package":"fake/a","Test":"TestA"}
{"Action":"output","Package":"fake/a","Output":"ok  \tfake/a\t(cached)\n"}
{"Action":"pass","Package":"fake/a"}
`
	var got strings.Builder
	check.Is(t, check.Err(Digest(strings.NewReader(events), &got, io.Discard)), nil)
	if want := "skipped: no network\n    fake/a TestA (cached)\n"; !strings.Contains(got.String(), want) {
		t.Errorf("it says %q, want %q in it", got.String(), want)
	}
}

// A stream that is cut off is a failure of the packages that had not ended, and what is no event is shown.
func TestDigestOfAStreamThatIsCutOff(t *testing.T) {
	t.Parallel()
	const events = `go: no such tool
{"Action":"output","Package":"fake/a","Test":"TestA","Output":"    a_test.go:1: waits\n"}
`
	var got strings.Builder
	passed, err := Digest(strings.NewReader(events), &got, io.Discard)
	if err != nil || passed {
		t.Errorf("passed %v, error %v: want a failure", passed, err)
	}
	for _, want := range []string{"go: no such tool\n", "--- not ended: TestA\n    a_test.go:1: waits\nFAIL\tfake/a ["} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("it says %q, want %q in it", got.String(), want)
		}
	}
}

// The race detector prints its report when it sees the race: in the output of whatever test is logging then.
func TestOutputOfOtherTestsThatIsNotTheirLog(t *testing.T) {
	t.Parallel()
	const events = `{"Action":"output","Package":"fake/a","Test":"TestA","Output":"    a_test.go:1: mine\n"}
{"Action":"output","Package":"fake/a","Test":"TestA","Output":"WARNING: DATA RACE\n"}
{"Action":"output","Package":"fake/a","Test":"TestA","Output":"  fake/a.race()\n"}
{"Action":"output","Package":"fake/a","Test":"TestA","Output":"      /src/a.go:7 +0x1\n"}
{"Action":"output","Package":"fake/a","Test":"TestA","Output":"    a_test.go:2: mine too\n"}
{"Action":"pass","Package":"fake/a","Test":"TestA"}
{"Action":"output","Package":"fake/a","Test":"TestB","Output":"    testing.go:1: race detected during execution of test\n"}
{"Action":"output","Package":"fake/a","Test":"TestB","Output":"--- FAIL: TestB (0.00s)\n"}
{"Action":"fail","Package":"fake/a","Test":"TestB"}
{"Action":"output","Package":"fake/a","Output":"FAIL\tfake/a\t0.1s\n"}
{"Action":"fail","Package":"fake/a"}
`
	packages, err := Read(strings.NewReader(events), nil, nil)
	check.OK(t, err)
	const want = "WARNING: DATA RACE\n  fake/a.race()\n      /src/a.go:7 +0x1\n" +
		"--- FAIL: TestB (0.00s)\n    testing.go:1: race detected during execution of test\nFAIL\tfake/a\t0.1s\n"
	if got := packages[0].Failed(); got != want {
		t.Errorf("it says\n%s\nwant\n%s", got, want)
	}
}

func TestEnd(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err             error
		result, summary string
	}{
		{nil, Pass, "ok  \tfake/a\t1.500s\n"},
		{errors.New("signal: killed"), Fail, "FAIL\tfake/a\t1.500s\n"},
	} {
		p := &Package{Path: "fake/a"}
		p.End(test.err, 1500*time.Millisecond)
		if p.Result != test.result || p.Summary() != test.summary {
			t.Errorf("%v: result %q, %q", test.err, p.Result, p.Summary())
		}
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error)  { return 0, io.ErrUnexpectedEOF }
func (broken) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestErrorsOfTheStream(t *testing.T) {
	t.Parallel()
	if _, err := Digest(broken{}, io.Discard, io.Discard); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("reading fails with %v", err)
	}
	for _, w := range [][2]io.Writer{{broken{}, io.Discard}, {io.Discard, broken{}}} {
		if _, err := Digest(strings.NewReader(captured(t)), w[0], w[1]); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("writing fails with %v", err)
		}
	}
}
