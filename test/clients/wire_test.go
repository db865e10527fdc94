// Package clients_test runs the rules of the wire, clients/wire/cases.json, with Go and with a driver of another language.
package clients_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/recipient"
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

// patience bounds one answer.
const patience = time.Minute

// other is a driver of another language: a process that reads a line of JSON for each operation, and answers by one.
type other struct{ *testbed.Process }

func startDriver(t *testing.T, command []string, server string) other {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Env = append(cmd.Environ(), "NATS_URL="+server)
	process := check.Must(testbed.Command(t.Output(), cmd))(t)
	t.Cleanup(func() { _ = process.Kill() })
	return other{process}
}

func (o other) do(ctx context.Context, op string, in json.RawMessage) (got answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := fmt.Fprintf(o.Input(), "%s\n", text(map[string]any{"op": op, "in": in})); err != nil {
		return got, err
	}
	line, err := o.Line(ctx)
	if err != nil {
		return got, fmt.Errorf("%w; it said: %s", err, o.Said())
	}
	err = json.Unmarshal([]byte(line), &got)
	return got, err
}

// ours is the driver of the Go libraries. It has the operations of the suite itself, too, which look into streams and work jobs.
type ours struct {
	*testing.T

	js   jetstream.JetStream
	jobs *worker.Client
	pub  *contracts.Publisher
	ops  map[string]func(context.Context, *input) (any, error)
	end  func(outcome string) (any, error) // of the job that runs
}

// input has the arguments of operations.
type input struct {
	A        json.RawMessage `json:"a"`
	B        json.RawMessage `json:"b"`
	Channel  string          `json:"channel"`
	Event    json.RawMessage `json:"event"`
	ID       string          `json:"id"`
	Key      string          `json:"key"`
	Outcome  string          `json:"outcome"`
	Place    string          `json:"place"`
	Priority string          `json:"priority"`
	Provider string          `json:"provider"`
	Source   string          `json:"source"`
	Stream   string          `json:"stream"`
	Subject  string          `json:"subject"`
	Token    string          `json:"token"`
	Type     string          `json:"type"`
	User     string          `json:"user"`

	// Of a job, with times in milliseconds.
	Args    any               `json:"args"`
	At      time.Time         `json:"at"`
	Delay   int64             `json:"delay"`
	Headers map[string]string `json:"headers"`
	Unique  *struct {
		HoldDead   bool   `json:"holdDead"`
		Keep       int64  `json:"keep"`
		Key        string `json:"key"`
		Unrecorded bool   `json:"unrecorded"`
	} `json:"unique"`
}

func newGo(t *testing.T, js jetstream.JetStream) *ours {
	t.Helper()
	g := &ours{T: t, js: js}
	var err error
	g.jobs, err = worker.NewClient(js, worker.ClientConfig{AllowUntaken: true, Stream: "JOBS"})
	check.OK(t, err)
	g.pub = check.Must(contracts.NewPublisher(js, recipient.PublisherConfig()))(t)
	str := func(f func(in *input) (string, error)) func(context.Context, *input) (any, error) {
		return func(_ context.Context, in *input) (any, error) { return f(in) }
	}
	g.ops = map[string]func(context.Context, *input) (any, error){
		"token.encode": str(func(in *input) (string, error) { return contracts.EncodeToken(in.ID) }),
		"token.decode": str(func(in *input) (string, error) { return contracts.DecodeToken(in.Token) }),
		"message.id":   str(func(in *input) (string, error) { return contracts.MsgID(in.ID), nil }),
		"cloudevent.id": str(func(in *input) (string, error) {
			return contracts.CloudEvent{Source: in.Source, ID: in.ID}.MsgID(), nil
		}),
		"subject.import": str(func(in *input) (string, error) {
			return contracts.ImportJobSubject(contracts.ImportPriority(in.Priority), in.ID)
		}),
		"subject.enrich": str(func(in *input) (string, error) { return contracts.EnrichJobSubject(in.Provider, in.Place) }),
		"subject.send": str(func(in *input) (string, error) {
			return contracts.NotifySendSubject(in.Channel, contracts.RecipientType(in.Type), in.User, in.ID)
		}),
		"subject.dead": str(func(in *input) (string, error) { return "dead." + in.Stream + "." + in.Subject, nil }),
		"key.inbox": str(func(in *input) (string, error) {
			return contracts.InboxKey(contracts.RecipientType(in.Type), in.User, in.ID)
		}),
		"request.prefix": str(func(in *input) (string, error) { return url.QueryEscape(in.User) + ":", nil }),
		"subject.event": str(func(in *input) (string, error) {
			e, err := contracts.Decode[recipient.Event](in.Event)
			if err != nil {
				return "", err
			}
			return e.Subject()
		}),
		"event.check": func(_ context.Context, in *input) (any, error) {
			return check1(contracts.Decode[recipient.Event](in.Event))
		},
		"event.same": same,
		"publish":    g.publish,
		"insert":     g.store(g.jobs.Insert),
		"insert.checked": func(ctx context.Context, in *input) (any, error) { // by a client that knows of no worker yet
			c, err := worker.NewClient(js, worker.ClientConfig{Stream: "JOBS"})
			if err != nil {
				return nil, err
			}
			return g.store(c.Insert)(ctx, in)
		},
		"inspect": func(ctx context.Context, in *input) (any, error) {
			s, err := g.jobs.Job(ctx, worker.JobByKey(in.Subject, in.Key))
			if errors.Is(err, worker.ErrNoJob) {
				s.State, err = "free", nil
			}
			return map[string]any{"id": s.ID, "state": s.State, "subject": s.Subject}, err
		},
		"stored": g.stored,
		"consumer": func(ctx context.Context, in *input) (any, error) {
			return check1(js.CreateConsumer(ctx, "JOBS", jetstream.ConsumerConfig{Durable: "takes", FilterSubject: in.Subject}))
		},
		"begin": g.begin,
		"end":   func(_ context.Context, in *input) (any, error) { return g.end(in.Outcome) },
		"work": func(ctx context.Context, in *input) (any, error) {
			if _, err := g.begin(ctx, in); err != nil {
				return nil, err
			}
			return g.end(in.Outcome)
		},
	}
	return g
}

// check1 leaves out the decoded value.
func check1(_ any, err error) (any, error) { return "valid", err }

// harness reports whether an operation is the suite's own.
func (*ours) harness(op string) bool {
	return slices.Contains([]string{"begin", "consumer", "end", "stored", "work"}, op)
}

var field = regexp.MustCompile(`NewJob\.([A-Za-z.]+):`)

func (g *ours) do(ctx context.Context, op string, raw json.RawMessage) (got answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var in input
	if err := json.Unmarshal(raw, &in); err != nil {
		return got, err
	}
	f, ok := g.ops[op]
	if !ok {
		return got, fmt.Errorf("there is no operation %q", op)
	}
	out, err := f(ctx, &in)
	invalid, isInvalid := errors.AsType[*contracts.ValidationError](err)
	_, isRefused := errors.AsType[*worker.InsertError](err)
	_, isUntaken := errors.AsType[*worker.UntakenError](err)
	switch {
	case err == nil:
		err = json.Unmarshal([]byte(text(out)), &got.Out)
		return got, err
	case errors.Is(err, contracts.ErrEventMismatch):
		got.Error = "mismatch"
	case isUntaken:
		got.Error = "untaken"
	case isInvalid:
		got.Error = "invalid"
		for _, f := range invalid.Fields {
			got.Fields = append(got.Fields, f.Path)
		}
	case isRefused, errors.Is(err, contracts.ErrEmptyToken), errors.Is(err, contracts.ErrTokenMalformed), errors.Is(err, contracts.ErrTokenTooLong):
		got.Error = "invalid"
		for _, found := range field.FindAllStringSubmatch(err.Error(), -1) {
			got.Fields = append(got.Fields, strings.Replace(strings.ToLower(found[1]), "header", "headers", 1))
		}
	default:
		return got, err
	}
	return got, nil
}

func same(_ context.Context, in *input) (any, error) {
	var marks [2]string
	for i, raw := range []json.RawMessage{in.A, in.B} {
		e, err := contracts.Decode[recipient.Event](raw)
		if err == nil {
			marks[i], err = e.Fingerprint()
		}
		if err != nil {
			return nil, err
		}
	}
	return marks[0] == marks[1], nil
}

func (g *ours) publish(ctx context.Context, in *input) (any, error) {
	e, err := contracts.Decode[recipient.Event](in.Event)
	if err != nil {
		return nil, err
	}
	m, err := e.Message()
	if err != nil {
		return nil, err
	}
	done, err := g.pub.Publish(ctx, m)
	return map[string]any{"duplicate": done.Duplicate, "sequence": done.Sequence}, err
}

// store stores a job by a method of a client.
func (*ours) store(by func(context.Context, worker.NewJob) (worker.Receipt, error)) func(context.Context, *input) (any, error) {
	return func(ctx context.Context, in *input) (any, error) {
		job := worker.NewJob{
			Args: in.Args, At: in.At, Delay: time.Duration(in.Delay) * time.Millisecond, Header: nats.Header{}, ID: in.ID, Subject: in.Subject,
		}
		for name, value := range in.Headers {
			job.Header[name] = []string{value}
		}
		if u := in.Unique; u != nil {
			job.Unique = &worker.Unique{HoldDead: u.HoldDead, Keep: time.Duration(u.Keep) * time.Millisecond, Key: u.Key, Unrecorded: u.Unrecorded}
		}
		r, err := by(ctx, job)
		return map[string]any{
			"duplicate": r.Duplicate, "id": r.ID, "sequence": r.Sequence, "state": r.State, "subject": r.Subject,
		}, err
	}
}

// stored answers with the last message of a subject.
func (g *ours) stored(ctx context.Context, in *input) (any, error) {
	stream, err := g.js.Stream(ctx, in.Stream)
	if err != nil {
		return nil, err
	}
	m, err := stream.GetLastMsgForSubject(ctx, in.Subject)
	if err != nil {
		return nil, fmt.Errorf("last message of %s: %w", in.Subject, err)
	}
	headers := map[string]string{}
	for name, values := range m.Header {
		if slices.Contains([]string{"Nats-Sequence", "Nats-Stream", "Nats-Subject", "Nats-Time-Stamp"}, name) {
			continue // added by the replica that answers
		}
		headers[name] = strings.Join(values, ", ")
	}
	return map[string]any{"subject": m.Subject, "headers": headers, "data": json.RawMessage(m.Data)}, nil
}

// begin starts a worker, and answers with the job that it runs. The end of that is another operation.
func (g *ours) begin(context.Context, *input) (any, error) {
	began, outcome, settled := make(chan any, 1), make(chan string, 1), make(chan worker.Settlement, 1)
	w, err := worker.New(g.js, worker.Config{
		AutoCreate: true, Concurrency: 1, Consumer: "suite", Logger: slog.New(slog.DiscardHandler), Stream: "JOBS",
		Hooks: worker.Hooks{Settled: func(s worker.Settlement) { settled <- s }},
	})
	if err != nil {
		return nil, err
	}
	err = worker.Handle(w, "jobs.>", worker.Policy{}, func(_ context.Context, job *worker.Job[any]) error {
		began <- map[string]any{"id": job.ID, "subject": job.Subject, "args": job.Args}
		if <-outcome == "dead" {
			return worker.Discard(errors.New("as the case wants it"))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	stop := natstest.Background(g.T, w.Run)
	select {
	case job := <-began:
		g.end = func(as string) (any, error) {
			defer stop()
			outcome <- as
			s := <-settled
			job.(map[string]any)["outcome"] = s.Outcome //nolint:forcetypeassert // see above
			return job, nil
		}
		return job, nil
	case <-time.After(patience):
		stop()
		return nil, errors.New("no job was worked")
	}
}
