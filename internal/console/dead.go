package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

const (
	deadLooked    = 10_000 // dead letters that a page reads: they take a fifth of a second
	deadRecords   = 250    // records that are searched for replays without an end
	deadGroups    = 100    // that are shown
	deadPerPage   = 50     // dead letters
	groupText     = 1000   // bytes of an error next to its group
	deadUnended   = 4      // replays without an end that are shown
	deadRate      = 10     // dead letters in a second, unless a form has another rate
	listTime      = 5 * time.Second
	rehearsed     = 5000 // dead letters of a dry run
	rehearsalTime = 3 * time.Second
	topicReplays  = "replays"
)

func (c *Console) addDead() {
	c.replays = &replays{audit: c.cfg.Audit, cancels: map[string]context.CancelCauseFunc{}, tell: func() { c.hub.tell(topicReplays) }}
	c.page("GET /dead", names(&operate.DeadLetters{}, "by"), c.showDead)
	c.page("GET /dead/rehearsal", names(&operate.DeadLetters{}, "by"), c.showRehearsal)
	c.page("GET /dead/replays", nil, func(r *request) error {
		r.Command, r.Live = "expediter audit", topicReplays
		return r.render("deadreplays", "Replays", c.replays.list())
	})
	c.page("GET /dead/one", []string{"account", "seq"}, c.showOne)
	c.page("GET /dead/list", names(&operate.DeadLetters{}), c.showList)
	c.action("POST /dead/stop", nil, func(r *request) (deed, error) {
		id := r.PostForm.Get("id")
		do := func(context.Context) (int, string, error) {
			if !c.replays.stop(id, errStopped) {
				return 0, "", fail(http.StatusConflict, "It has already ended, or it runs in another console.")
			}
			return 1, "It stops after the current dead letter.", nil
		}
		return deed{Action: operate.Action{Do: do, Name: "stop", Target: "replay " + strconv.Quote(id)}}, nil
	})
	for action, more := range map[string][]string{operate.Replay: {"rate"}, operate.Discard: nil} {
		c.action("POST /dead/"+action, names(&operate.DeadLetters{}, append(more, "by", "typed")...), func(r *request) (deed, error) {
			return c.planMany(r, action, false)
		})
		c.action("POST /dead/selected/"+action, []string{"account", "seq", "typed"}, func(r *request) (deed, error) {
			return c.planMany(r, action, true)
		})
		c.action("POST /dead/one/"+action, nil, func(r *request) (deed, error) { return c.planOne(r, action) })
	}
}

// account returns the account with a name. A page without a name is about the first account; an action has to name the account where there
// are several.
func (c *Console) account(r *request, name string) (Account, error) {
	for _, a := range c.cfg.Accounts {
		if a.Name == name || name == "" && (r.Method == http.MethodGet || len(c.cfg.Accounts) == 1) {
			return a.of(r.Context())
		}
	}
	return Account{}, fail(http.StatusNotFound, "There is no account %.50q here.", name)
}

// groupings are the properties by which dead letters can be grouped, and the headings of their columns.
var groupings = map[deadletter.Grouping]string{
	deadletter.BySignature: "Error", deadletter.BySubject: "Subjects", deadletter.ByStream: "Stream", deadletter.ByWorker: "Worker",
}

// deadQuery is a request's selection of dead letters.
type deadQuery struct {
	operate.DeadLetters

	By     deadletter.Grouping
	Filter deadletter.Filter

	js    jetstream.JetStream
	now   time.Time // of the server
	store *deadletter.Store
}

// deadQuery reads the selection of a request, and opens the dead letters. Two round trips.
func (c *Console) deadQuery(r *request, q url.Values) (d deadQuery, err error) {
	operate.Read(&d.DeadLetters, q)
	a, err := c.account(r, d.Account)
	if err != nil {
		return d, err
	}
	d.js = a.JetStream
	if d.store, err = deadletter.Open(r.Context(), d.js, deadletter.Config{}); err != nil {
		return d, err
	}
	if d.now, err = d.store.Now(r.Context()); err != nil {
		return d, err
	}
	d.Account, d.Stream, d.By = a.Name, "", deadletter.Grouping(q.Get("by"))
	if groupings[d.By] == "" {
		d.By = deadletter.BySignature
	}
	if d.Filter, err = d.DeadLetters.Filter(d.now, nil); err != nil {
		err = fail(http.StatusBadRequest, "The filter is not valid: %v.", err)
	}
	return d, err
}

// frozen returns the selection with absolute times: whenever it is repeated, it selects the same dead letters and none that came later.
func (d deadQuery) frozen() deadQuery {
	if d.Filter.Until.IsZero() {
		d.Filter.Until = d.now
	}
	if d.Until = d.Filter.Until.UTC().Format(time.RFC3339Nano); d.Since != "" {
		d.Since = d.Filter.Since.UTC().Format(time.RFC3339Nano)
	}
	return d
}

// First is the selection from its newest dead letter on.
func (d deadQuery) First() *operate.DeadLetters {
	d.Before = ""
	return &d.DeadLetters
}

// Shared names the property that the dead letters of a group have in common.
func (d deadQuery) Shared() string { return groupings[d.By] }

type deadRow struct {
	deadletter.Group

	List, Link template.URL // one by one, and as a group
}

// Text is the newest error, without secrets.
func (g deadRow) Text() string { return redact.Shorten(redact.People(g.Error), groupText) }

// Name is the property that the dead letters of the group have in common.
func (g deadRow) Name() string {
	switch g.By {
	case deadletter.BySubject:
		return cmp.Or(g.Subjects, "no subject")
	case deadletter.ByStream:
		return cmp.Or(g.Stream, "no stream")
	case deadletter.ByWorker:
		return cmp.Or(g.Worker, "no worker")
	default:
		return cmp.Or(g.Signature, "no text")
	}
}

type deadPage struct {
	deadletter.Overview
	deadQuery

	Accounts    []Account
	Alone       bool         // it shows one dead letter
	Back        template.URL // from there
	Running     int
	Interrupted []audit.Record
	DeadLetter  *deadLetterPage // of the only group
	List        template.URL
	Missing     bool // there is no stream
	More        int  // groups that are not shown
	Rows        []deadRow

	// The same for actions: as hidden fields of their forms, as the address of a dry run, and as command lines.
	Fields          url.Values
	Rehearsal       template.URL
	Replay, Discard string
	Rate            int
}

// Groupings are the properties by which dead letters can be grouped.
func (p deadPage) Groupings() []deadletter.Grouping { return slices.Sorted(maps.Keys(groupings)) }

// Looked is the largest number of messages that the page reads.
func (p deadPage) Looked() int { return deadLooked }

// Kept are the parts of the filter that have no field in its form.
func (p deadPage) Kept() map[string]string {
	return map[string]string{"before": p.Before, "kind": p.Kind, "reason": p.Reason, "until": p.Until, "worker": p.Worker}
}

// Windows are the times that the form offers, and the chosen time.
func (p deadPage) Windows() [][2]string {
	all := [][2]string{{"", "at any time"}, {"1h", "in the last hour"}, {"24h", "in the last day"}, {"7d", "in the last 7 days"}}
	if !slices.ContainsFunc(all, func(w [2]string) bool { return w[0] == p.Since }) {
		all = append(all, [2]string{p.Since, "since " + p.Since})
	}
	return all
}

// showDead shows groups of dead letters. Two round trips, one for each 4,096 of them that it reads, and two for the records of the audit.
func (c *Console) showDead(r *request) error {
	d, err := c.deadQuery(r, r.URL.Query())
	if errors.Is(err, deadletter.ErrNoStream) {
		return r.render("dead", "Dead letters", deadPage{Accounts: c.cfg.Accounts, Missing: true})
	}
	if err != nil {
		return err
	}
	p := deadPage{Accounts: c.cfg.Accounts, deadQuery: d, Rate: deadRate}
	if p.Overview, err = c.survey(r.Context(), d, deadLooked); err != nil {
		return err
	}
	for _, g := range p.Groups[:min(len(p.Groups), deadGroups)] {
		p.Rows = append(p.Rows, deadRow{Group: g, List: c.href("/dead/list", d.Within(g)), Link: c.href("/dead", d.Within(g))})
	}
	p.List, p.More = c.href("/dead/list", &d.DeadLetters), len(p.Groups)-len(p.Rows)
	if len(p.Groups) == 1 && p.Others == 0 {
		e, err := d.store.Get(r.Context(), p.Groups[0].Example)
		if err == nil {
			p.DeadLetter = newDeadLetterPage(d.Account, e)
		} else if !errors.Is(err, deadletter.ErrNotFound) {
			return err
		}
	}
	if p.Running, p.Interrupted, err = c.interrupted(r.Context()); err != nil {
		return err
	}
	var by []string
	if d.By != deadletter.BySignature {
		by = []string{"--by", string(d.By)}
	}
	r.Command = operate.Line("dead groups", &d.DeadLetters, by...)
	d = d.frozen()
	p.Fields = operate.Query(&d.DeadLetters)
	p.Rehearsal = c.href("/dead/rehearsal", p.Fields)
	p.Replay = d.CommandLine(operate.Replay, nil, "--rate", strconv.Itoa(deadRate), "--yes")
	p.Discard = d.CommandLine(operate.Discard, nil, "--yes")
	return r.render("dead", "Dead letters", p)
}

// interrupted returns the number of replays that run here, and the latest records of those without an end: they run in another process,
// their process died, they were stopped, or the server was away. Of several records of the same filter the latest counts.
func (c *Console) interrupted(ctx context.Context) (running int, all []audit.Record, err error) {
	seen := map[string]bool{}
	for _, p := range c.replays.list() {
		if p.Ended.IsZero() {
			running, seen[p.selection()] = running+1, true
		}
	}
	if c.cfg.Audit == nil {
		return running, nil, nil
	}
	records, err := c.records(ctx, audit.List, deadRecords)
	for _, r := range records {
		filter, ok := operate.CutTarget(r.Target)
		if ok && !seen[filter] && r.Outcome != audit.Done && len(all) < deadUnended {
			all = append(all, r)
		}
		seen[filter] = true
	}
	return running, all, err
}

// look calls read when it is the request's turn. Only a few requests read at a time: where there are many dead letters, each costs a second
// of CPU time.
func (c *Console) look(ctx context.Context, read func() error) error {
	select {
	case c.looks <- struct{}{}:
		defer func() { <-c.looks }()
		return read()
	case <-ctx.Done():
		return fmt.Errorf("wait for other readers of dead letters: %w", ctx.Err())
	}
}

// lookWithin reads the dead letters of the request's selection for a bounded time.
func (c *Console) lookWithin(r *request, limit time.Duration, read func(context.Context, deadQuery) error) error {
	d, err := c.deadQuery(r, r.URL.Query())
	if err != nil {
		return err
	}
	return c.look(r.Context(), func() error {
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		return read(ctx, d)
	})
}

// survey groups those of the newest dead letters that are selected. newest is their number, 0 for all.
func (c *Console) survey(ctx context.Context, d deadQuery, newest uint64) (o deadletter.Overview, err error) {
	err = c.look(ctx, func() (err error) {
		o, err = d.store.Survey(ctx, d.Filter, deadletter.SurveyOptions{By: d.By, Newest: newest})
		return err
	})
	return o, err
}

// rehearsal is a dry run of a replay.
type rehearsal struct {
	operate.Change

	Partial bool // it did not come to its end
}

// showRehearsal shows the outcome that a replay would have. Four round trips for each dead letter, for three seconds at most.
func (c *Console) showRehearsal(r *request) error {
	return c.lookWithin(r, rehearsalTime, func(ctx context.Context, d deadQuery) error {
		p := rehearsal{Change: operate.Change{DryRun: true}}
		_, err := p.Run(ctx, d.js, d.store, d.Filter, deadletter.ReplayOptions{Each: p.Add, Limit: rehearsed})
		if err != nil && ctx.Err() == nil {
			return err
		}
		p.Partial = err != nil || p.Over() == rehearsed
		r.Command = d.CommandLine(operate.Replay, nil)
		return r.render("deadrehearsal", "Dry run", p)
	})
}

// deadListPage lists the dead letters of a selection, the newest first.
type deadListPage struct {
	deadQuery

	List    []operate.DeadLetter
	Shown   url.Values   // the selection's fields that are set
	Next    template.URL // "" on the last page
	Partial bool         // the time ended before the page was full
}

// showList lists dead letters. It reads all that are newer than the last one that it shows, for five seconds at most.
func (c *Console) showList(r *request) error {
	return c.lookWithin(r, listTime, func(ctx context.Context, d deadQuery) error { return c.listDead(ctx, r, d) })
}

func (c *Console) listDead(ctx context.Context, r *request, d deadQuery) error {
	p := deadListPage{deadQuery: d, Shown: operate.Query(&d.DeadLetters)}
	for e, err := range d.store.List(ctx, d.Filter, deadletter.NewestFirst) {
		if p.Partial = err != nil && ctx.Err() != nil && r.Context().Err() == nil; p.Partial {
			break
		}
		if err != nil {
			return err
		}
		if len(p.List) == deadPerPage {
			next := d.DeadLetters
			next.Before = strconv.FormatUint(p.List[deadPerPage-1].Sequence, 10)
			p.Next = c.href("/dead/list", &next)
			break
		}
		l := operate.NewDeadLetter(e)
		l.DeadLetter.Error = redact.Shorten(redact.People(l.DeadLetter.Error), groupText)
		p.List = append(p.List, l)
	}
	r.Command = operate.Line("dead list", &d.DeadLetters, "--limit", strconv.Itoa(deadPerPage))
	return r.render("deadletters", "Dead letters, one by one", p)
}

// planMany plans an action, in the background, on the dead letters that a filter selects, or on those that a form names. It reads them all.
func (c *Console) planMany(r *request, action string, named bool) (deed, error) {
	d, err := c.deadQuery(r, r.PostForm)
	if err != nil {
		return deed{}, err
	}
	if named {
		d.Filter.Sequences, err = operate.ParseSequences(r.PostForm["seq"])
		if n := len(d.Filter.Sequences); err == nil && (n == 0 || n > jobsAtOnce) {
			err = fail(http.StatusBadRequest, "%s selected: select 1 to %s. Nothing was done.", counted(n, "dead letter"), number(jobsAtOnce))
		}
	} else {
		d = d.frozen()
		maps.Copy(r.PostForm, operate.Query(&d.DeadLetters))
	}
	p := replay{Change: operate.Change{Action: action}, deadQuery: d, Rate: deadRate}
	more := make([]string, 0, 4)
	if text := r.PostForm.Get("rate"); err == nil && action == operate.Replay && !named {
		if p.Rate, err = strconv.ParseFloat(text, 64); err != nil || p.Rate <= 0 || p.Rate > 100_000 {
			err = fail(http.StatusBadRequest, "The rate is %.20q: want dead letters per second, such as 10. Nothing was done.", text)
		}
	}
	if err != nil {
		return deed{}, err
	}
	if action == operate.Replay {
		more = append(more, "--rate", strconv.FormatFloat(p.Rate, 'f', -1, 64))
	}
	d.By = deadletter.ByStream
	o, err := c.survey(r.Context(), d, 0)
	if err == nil && o.Total == 0 {
		err = fail(http.StatusConflict, "No dead letter matches any more. Nothing was done.")
	}
	p.Total = o.Total
	do := func(ctx context.Context) (int, string, error) { return 0, "", c.replays.start(ctx, p) }
	q := deed{
		Action: operate.Action{Do: do, Name: action, Plan: action + " " + counted(o.Total, "dead letter") + "."}, Recorded: true,
		To: c.href("/dead/replays"),
		Of: o.Total, Things: "dead letter", Line: d.CommandLine(action, d.Filter.Sequences, append(more, "--yes")...),
	}
	if !named {
		q.Filter = operate.Query(&d.DeadLetters)
	}
	if err == nil && action == operate.Replay {
		var streams []string
		for _, g := range o.Groups {
			streams = append(streams, g.Stream)
		}
		var reach string
		reach, err = operate.Reach(r.Context(), d.js, streams...)
		q.Plan += reach
	}
	return q, err
}

const maxEdited = 256 << 10 // bytes of a payload that a form has

type deadLetterPage struct {
	deadletter.Entry

	Account string
	Edit    string // the whole payload, for callers that may replay it
	Editing bool   // the payload is a text that is small enough
	Headers string
	Hidden  []string // names of the members of the payload that are not shown
	Payload string
	Problem string
}

// Line returns the expediter dead command of an action on the dead letter.
func (p *deadLetterPage) Line(action string, more ...string) string {
	return (&operate.DeadLetters{Account: p.Account}).CommandLine(action, []uint64{p.Sequence}, more...)
}

func newDeadLetterPage(account string, e deadletter.Entry) *deadLetterPage {
	l := e.DeadLetter
	p := &deadLetterPage{Account: account, Entry: e, Headers: headers(l.Header)}
	p.Payload, p.Hidden = readable(l.Subject, l.Payload)
	if p.Editing = e.Problem == nil && len(l.Payload) <= maxEdited && isText(l.Payload); p.Editing {
		p.Edit = string(l.Payload)
	}
	if e.Problem != nil {
		p.Problem = redact.Error(e.Problem).Error()
	}
	p.DeadLetter.Error, p.DeadLetter.Stack = redact.People(l.Error), redact.People(l.Stack)
	return p
}

// isText reports whether bytes are a text that people can read.
func isText(data []byte) bool {
	return utf8.Valid(data) && !bytes.ContainsFunc(data, func(r rune) bool { return unicode.IsControl(r) && !unicode.IsSpace(r) })
}

// openOne reads the dead letter that a request names. Three round trips.
func (c *Console) openOne(r *request, q url.Values) (d deadQuery, e deadletter.Entry, err error) {
	sequences, err := operate.ParseSequences([]string{q.Get("seq")})
	if err != nil {
		return d, e, fail(http.StatusBadRequest, "%v.", err)
	}
	if d, err = c.deadQuery(r, url.Values{"account": q["account"]}); err != nil {
		return d, e, err
	}
	seq := sequences[0]
	d.Filter.Sequences = sequences
	if e, err = d.store.Get(r.Context(), seq); errors.Is(err, deadletter.ErrNotFound) {
		err = fail(http.StatusNotFound, "Dead letter %d no longer exists: it was replayed or discarded, or it expired.", seq)
	}
	return d, e, err
}

func (c *Console) showOne(r *request) error {
	d, e, err := c.openOne(r, r.URL.Query())
	if err != nil {
		return err
	}
	p := newDeadLetterPage(d.Account, e)
	r.Command = p.Line("show")
	return r.render("dead", fmt.Sprintf("Dead letter %d", e.Sequence), deadPage{Alone: true, Back: c.deadOf(d.Account), DeadLetter: p})
}

func (c *Console) deadOf(account string) template.URL {
	return c.href("/dead", &operate.DeadLetters{Account: account})
}

// planOne plans to replay one dead letter, with the form's payload if it has one, or to discard it.
func (c *Console) planOne(r *request, action string) (deed, error) {
	d, e, err := c.openOne(r, r.PostForm)
	if err != nil {
		return deed{}, err
	}
	change := operate.Change{Action: action}
	opts, past := deadletter.ReplayOptions{Each: change.Add}, "replayed"
	if action == operate.Discard {
		past = "discarded"
	} else if text := r.PostForm.Get("payload"); r.PostForm.Has("payload") {
		if !bytes.Contains(e.DeadLetter.Payload, []byte("\r\n")) { // browsers write line breaks as \r\n
			text = strings.ReplaceAll(text, "\r\n", "\n")
		}
		if json.Valid(e.DeadLetter.Payload) && !json.Valid([]byte(text)) {
			return deed{}, fail(http.StatusBadRequest, "The new payload is not JSON, and the old one was. Nothing was done: go back and fix it.")
		}
		opts.Edit = func(worker.DeadLetter) ([]byte, error) { return []byte(text), nil }
	}
	do := func(ctx context.Context) (int, string, error) {
		done, err := change.Run(ctx, d.js, d.store, d.Filter, opts)
		if err == nil && len(change.Problems) > 0 {
			err = fail(http.StatusConflict, "Dead letter %d stays: %s.", e.Sequence, change.Problems[0].Error)
		}
		return done, fmt.Sprintf("Dead letter %d was %s. %s", e.Sequence, past, change.Note), err
	}
	return deed{
		Action: operate.Action{Do: do, Name: action, Target: d.Target(d.Filter.Sequences)}, To: c.deadOf(d.Account),
		Of: 1, Things: "dead letter", Line: d.CommandLine(action, d.Filter.Sequences, "--yes"),
	}, nil
}
