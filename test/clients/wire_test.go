// Package clients_test runs the rules of the wire, clients/wire/cases.json, with Go and with a driver of another language.
package clients_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var command = flag.String("driver", "", "the `command` that starts the driver of another language, with spaces between its words")

// step is one call of an operation, and its expected answer: Out, or a refusal for the Fields, or any refusal.
type step struct {
	By     string          `json:"by"` // "go" in the cases in which both languages take part
	Op     string          `json:"op"`
	In     json.RawMessage `json:"in"`
	Out    any             `json:"out"`
	Error  string          `json:"error"`
	Fields []string        `json:"fields"`
}

// answer is the answer of a driver.
type answer struct {
	Out    any      `json:"out"`
	Error  string   `json:"error"`
	Fields []string `json:"fields"`
}

type driver interface {
	do(ctx context.Context, op string, in json.RawMessage) (answer, error)
}

type testCase struct {
	step

	Name  string `json:"name"`
	Steps []step `json:"steps"`
}

func cases(t *testing.T) []testCase {
	t.Helper()
	data := check.Must(os.ReadFile("../../clients/wire/cases.json"))(t)
	var all []testCase
	check.OK(t, json.Unmarshal(data, &all))
	check.That(t, len(all) >= 60, "%d cases are too few to be all", len(all))
	return all
}

func TestWireOfGo(t *testing.T) {
	srv := natstest.Server(t)
	_, js := natstest.Connect(t, srv)
	run(t, js, newGo(t, js))
}

func TestWireOfTheDriver(t *testing.T) {
	if *command == "" {
		t.Skip("-args -driver names none: .ci/run client runs the one in TypeScript")
	}
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	_, js := natstest.Connect(t, srv)
	run(t, js, startDriver(t, strings.Fields(*command), srv.URL()))
}

// run gives each case fresh streams.
func run(t *testing.T, js jetstream.JetStream, d driver) {
	t.Helper()
	own := newGo(t, js)
	for _, c := range cases(t) {
		t.Run(c.Name, func(t *testing.T) {
			steps := c.Steps
			if steps == nil {
				steps = []step{c.step}
			} else {
				fresh(t, js)
			}
			vars := map[string]string{}
			for i, s := range steps {
				by := d
				if s.By == "go" || own.harness(s.Op) {
					by = own
				}
				got := check.Must(by.do(t.Context(), s.Op, replace(s.In, vars)))(t)
				var ok bool
				switch {
				case s.Fields != nil:
					ok = got.Error != "" && under(got.Fields, s.Fields) && under(s.Fields, got.Fields)
				case s.Error != "" || got.Error != "":
					ok = s.Error == got.Error || s.Error == "any" && got.Error != ""
				default:
					ok = matches(s.Out, got.Out, vars)
				}
				check.Require(t, ok, "step %d, %s of %s: want %s, got %s", i+1, s.Op, s.In, text(s), text(got))
			}
		})
	}
}

// fresh recreates the streams.
func fresh(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	for _, cfg := range []jetstream.StreamConfig{
		worker.StreamConfig("JOBS", "jobs.>"),
		{Name: contracts.StreamEvents, Subjects: []string{contracts.EventsSubjects}},
		{Name: "DEAD", AllowDirect: true, Subjects: []string{"dead.>"}, Duplicates: time.Minute, MaxAge: 24 * time.Hour},
	} {
		if err := js.DeleteStream(t.Context(), cfg.Name); !errors.Is(err, jetstream.ErrStreamNotFound) {
			check.OK(t, err)
		}
		cfg.Storage = jetstream.MemoryStorage
		check.OK(t, check.Err(js.CreateStream(t.Context(), cfg)))
	}
}

// replace puts the texts that "$name" stands for into an input.
func replace(in json.RawMessage, vars map[string]string) json.RawMessage {
	said := string(in)
	for name, value := range vars {
		said = strings.ReplaceAll(said, `"`+name+`"`, text(value))
	}
	return json.RawMessage(said)
}

// matches reports whether an answer is as wanted. Members that are not named do not count, but among headers. "$name" is any text, and
// the same one each time.
func matches(want, got any, vars map[string]string) bool {
	switch want := want.(type) {
	case string:
		if !strings.HasPrefix(want, "$") {
			return want == got
		}
		said, ok := got.(string)
		if bound, known := vars[want]; known {
			return bound == said
		}
		vars[want] = said
		return ok && said != ""
	case map[string]any:
		members, ok := got.(map[string]any)
		for name, value := range want {
			there, has := members[name]
			ok = ok && has && matches(value, there, vars)
			if all, isHeaders := there.(map[string]any); ok && name == "headers" && isHeaders {
				ok = len(all) == len(value.(map[string]any)) //nolint:forcetypeassert // it has matched
			}
		}
		return ok
	default:
		return text(want) == text(got)
	}
}

// under reports whether each path is one of others, or below or above one.
func under(paths, others []string) bool {
	for _, path := range paths {
		found := false
		for _, other := range others {
			found = found || path == other || strings.HasPrefix(path, other+"/") || strings.HasPrefix(other, path+"/")
		}
		if !found {
			return false
		}
	}
	return true
}

func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(data)
}
