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
	deadLooked    = 10_000 // letters that a page reads: they take a fifth of a second
	deadRecords   = 250    // records in which replays without an end are looked for
	deadGroups    = 100    // that are shown
	deadPerPage   = 50     // letters
	groupText     = 1000   // bytes of an error beside its group
	deadUnended   = 4      // replays without an end that are shown
	deadRate      = 10     // letters in a second, unless a form has another rate
	lettersTime   = 5 * time.Second
	rehearsed     = 5000 // letters of a dry run
	rehearsalTime = 3 * time.Second
	topicReplays  = "replays"
)

func (c *Console) addDead() {
	c.replays = &replays{audit: c.cfg.Audit, cancels: map[string]context.CancelCauseFunc{}, tell: func() { c.hub.tell(topicReplays) }}
	c.page("GET /dead", names(&operate.Letters{}, "by"), c.showDead)
	c.page("GET /dead/rehearsal", names(&operate.Letters{}, "by"), c.showRehearsal)
	c.page("GET /dead/replays", nil, func(r *request) error {
		r.Command, r.Live = "expediter audit", topicReplays
		return r.render("deadreplays", "Replays", c.replays.list())
	})
	c.page("GET /dead/letter", []string{"account", "seq"}, c.showLetter)
	c.page("GET /dead/letters", names(&operate.Letters{}), c.showLetters)
	c.action("POST /dead/stop", nil, func(r *request) (deed, error) {
		id := r.PostForm.Get("id")
		do := func(context.Context) (int, string, error) {
			if !c.replays.stop(id, errStopped) {
				return 0, "", fail(http.StatusConflict, "It has ended already, or goes on in another console.")
			}
			return 1, "It stops after the letter that it is at.", nil
		}
		return deed{Action: operate.Action{Do: do, Name: "stop", Target: "replay " + strconv.Quote(id)}}, nil
	})
	for action, more := range map[string][]string{operate.Replay: {"rate"}, operate.Discard: nil} {
		c.action("POST /dead/"+action, names(&operate.Letters{}, append(more, "by", "typed")...), func(r *request) (deed, error) {
			return c.planLetters(r, action, false)
		})
		c.action("POST /dead/selected/"+action, []string{"account", "letter", "typed"}, func(r *request) (deed, error) {
			return c.planLetters(r, action, true)
		})
		c.action("POST /dead/letter/"+action, nil, func(r *request) (deed, error) { return c.planLetter(r, action) })
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

// groupings are the properties by which letters can be grouped, and the headings of their columns.
var groupings = map[deadletter.Grouping]string{
	deadletter.BySignature: "Error", deadletter.BySubject: "Subjects", deadletter.ByStream: "Stream", deadletter.ByWorker: "Worker",
}

// deadQuery is a request's selection of dead letters.
type deadQuery struct {
	operate.Letters

	By     deadletter.Grouping
	Filter deadletter.Filter

	js    jetstream.JetStream
	now   time.Time // of the server
	store *deadletter.Store
}

// deadQuery reads the selection of a request, and opens the letters. Two round trips.
func (c *Console) deadQuery(r *request, q url.Values) (d deadQuery, err error) {
	operate.Read(&d.Letters, q)
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
	if d.Filter, err = d.Letters.Filter(d.now, nil); err != nil {
		err = fail(http.StatusBadRequest, "These letters cannot be selected: %v.", err)
	}
	return d, err
}

// frozen returns the selection with its times as they are now: it selects no later letters, and the same ones whenever it is repeated.
func (d deadQuery) frozen() deadQuery {
	if d.Filter.Until.IsZero() {
		d.Filter.Until = d.now
	}
	if d.Until = d.Filter.Until.UTC().Format(time.RFC3339Nano); d.Since != "" {
		d.Since = d.Filter.Since.UTC().Format(time.RFC3339Nano)
	}
	return d
}

// First is the selection from its newest letter on.
func (d deadQuery) First() *operate.Letters {
	d.Before = ""
	return &d.Letters
}

// Shared names the property that the letters of a group have in common.
func (d deadQuery) Shared() string { return groupings[d.By] }

type deadRow struct {
	deadletter.Group

	Letters, Link template.URL // one by one, and as a group
}

// Text is the newest error, without what is secret.
func (g deadRow) Text() string { return redact.Shorten(redact.People(g.Error), groupText) }

// Name is the property that the letters of the group have in common.
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
	Alone       bool         // it shows a letter alone
	Back        template.URL // from there
	Going       int
	Interrupted []audit.Record
	Letter      *letterPage // of the only group
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

// Groupings are the properties by which letters can be grouped.
func (p deadPage) Groupings() []deadletter.Grouping { return slices.Sorted(maps.Keys(groupings)) }

// Looked is the number of messages that a page with more letters reads.
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

// showDead shows the letters by groups. Two round trips, one for each 4,096 letters that it reads, and two for the records of the audit.
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
		p.Rows = append(p.Rows, deadRow{Group: g, Letters: c.href("/dead/letters", d.Within(g)), Link: c.href("/dead", d.Within(g))})
	}
	p.List, p.More = c.href("/dead/letters", &d.Letters), len(p.Groups)-len(p.Rows)
	if len(p.Groups) == 1 && p.Others == 0 {
		e, err := d.store.Get(r.Context(), p.Groups[0].Example)
		if err == nil {
			p.Letter = newLetterPage(d.Account, e)
		} else if !errors.Is(err, deadletter.ErrNotFound) {
			return err
		}
	}
	if p.Going, p.Interrupted, err = c.interrupted(r.Context()); err != nil {
		return err
	}
	var by []string
	if d.By != deadletter.BySignature {
		by = []string{"--by", string(d.By)}
	}
	r.Command = operate.Line("dead groups", &d.Letters, by...)
	d = d.frozen()
	p.Fields = operate.Query(&d.Letters)
	p.Rehearsal = c.href("/dead/rehearsal", p.Fields)
	p.Replay = d.LettersLine(operate.Replay, nil, "--rate", strconv.Itoa(deadRate), "--yes")
	p.Discard = d.LettersLine(operate.Discard, nil, "--yes")
	return r.render("dead", "Dead letters", p)
}

// interrupted returns the number of replays that go on here, and the latest records of those that did not come to their end, or go on in
// another process: their process died, they were stopped, or the server was away. Of several records of the same letters the latest counts.
func (c *Console) interrupted(ctx context.Context) (going int, all []audit.Record, err error) {
	seen := map[string]bool{}
	for _, p := range c.replays.list() {
		if p.Ended.IsZero() {
			going, seen[p.letters()] = going+1, true
		}
	}
	if c.cfg.Audit == nil {
		return going, nil, nil
	}
	records, err := c.records(ctx, audit.List, deadRecords)
	for _, r := range records {
		letters, ok := operate.CutTarget(r.Target)
		if ok && !seen[letters] && r.Outcome != audit.Done && len(all) < deadUnended {
			all = append(all, r)
		}
		seen[letters] = true
	}
	return going, all, err
}

// look reads letters, once the request may: only a few requests do so at a time, because each costs a second of CPU time where there are
// many letters.
func (c *Console) look(ctx context.Context, read func() error) error {
	select {
	case c.looks <- struct{}{}:
		defer func() { <-c.looks }()
		return read()
	case <-ctx.Done():
		return fmt.Errorf("wait for other readers of letters: %w", ctx.Err())
	}
}

// lookWithin reads the letters of the request's selection for a bounded time.
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

// survey reads the selected letters among the newest, 0 for all.
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

// showRehearsal shows the outcome that a replay would have. Four round trips for each letter, for three seconds at most.
func (c *Console) showRehearsal(r *request) error {
	return c.lookWithin(r, rehearsalTime, func(ctx context.Context, d deadQuery) error {
		p := rehearsal{Change: operate.Change{DryRun: true}}
		_, err := p.Run(ctx, d.js, d.store, d.Filter, deadletter.ReplayOptions{Each: p.Add, Limit: rehearsed})
		if err != nil && ctx.Err() == nil {
			return err
		}
		p.Partial = err != nil || p.Over() == rehearsed
		r.Command = d.LettersLine(operate.Replay, nil)
		return r.render("deadrehearsal", "Dry run", p)
	})
}

// lettersPage lists the letters of a selection, the newest first.
type lettersPage struct {
	deadQuery

	Letters []operate.LetterRow
	Shown   url.Values   // the parts of the selection that are set
	Next    template.URL // "" behind the last page
	Partial bool         // the time ended before the page was full
}

// showLetters lists letters. It reads all letters that are newer than the last one that it shows, for five seconds at most.
func (c *Console) showLetters(r *request) error {
	return c.lookWithin(r, lettersTime, func(ctx context.Context, d deadQuery) error { return c.listLetters(ctx, r, d) })
}

func (c *Console) listLetters(ctx context.Context, r *request, d deadQuery) error {
	p := lettersPage{deadQuery: d, Shown: operate.Query(&d.Letters)}
	for e, err := range d.store.List(ctx, d.Filter, deadletter.NewestFirst) {
		if p.Partial = err != nil && ctx.Err() != nil && r.Context().Err() == nil; p.Partial {
			break
		}
		if err != nil {
			return err
		}
		if len(p.Letters) == deadPerPage {
			next := d.Letters
			next.Before = strconv.FormatUint(p.Letters[deadPerPage-1].Sequence, 10)
			p.Next = c.href("/dead/letters", &next)
			break
		}
		l := operate.NewLetterRow(e)
		l.Letter.Error = redact.Shorten(redact.People(l.Letter.Error), groupText)
		p.Letters = append(p.Letters, l)
	}
	r.Command = operate.Line("dead list", &d.Letters, "--limit", strconv.Itoa(deadPerPage))
	return r.render("deadletters", "Dead letters, one by one", p)
}

// planLetters plans an action, in the background, on the letters that a filter selects, or on those that a form names. It reads all
// letters.
func (c *Console) planLetters(r *request, action string, named bool) (deed, error) {
	d, err := c.deadQuery(r, r.PostForm)
	if err != nil {
		return deed{}, err
	}
	if named {
		d.Filter.Sequences, err = operate.ParseSequences(r.PostForm["letter"])
		if n := len(d.Filter.Sequences); err == nil && (n == 0 || n > jobsAtOnce) {
			err = fail(http.StatusBadRequest, "%s are selected: select 1 to %s. Nothing was done.", counted(n, "letter"), number(jobsAtOnce))
		}
	} else {
		d = d.frozen()
		maps.Copy(r.PostForm, operate.Query(&d.Letters))
	}
	p := replay{Change: operate.Change{Action: action}, deadQuery: d, Rate: deadRate}
	more := make([]string, 0, 4)
	if text := r.PostForm.Get("rate"); err == nil && action == operate.Replay && !named {
		if p.Rate, err = strconv.ParseFloat(text, 64); err != nil || p.Rate <= 0 || p.Rate > 100_000 {
			err = fail(http.StatusBadRequest, "The rate is %.20q: want letters in a second, such as 10. Nothing was done.", text)
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
		err = fail(http.StatusConflict, "No letter is left that this selects. Nothing was done.")
	}
	p.Total = o.Total
	do := func(ctx context.Context) (int, string, error) { return 0, "", c.replays.start(ctx, p) }
	q := deed{
		Action: operate.Action{Do: do, Name: action, Plan: action + " " + counted(o.Total, "letter") + "."}, Recorded: true,
		To: c.href("/dead/replays"),
		Of: o.Total, Things: "letter", Line: d.LettersLine(action, d.Filter.Sequences, append(more, "--yes")...),
	}
	if !named {
		q.Filter = operate.Query(&d.Letters)
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

type letterPage struct {
	deadletter.Entry

	Account string
	Edit    string // the whole payload, for callers that may replay it
	Editing bool   // the payload is a text, and small enough
	Headers string
	Hidden  []string // names of the members of the payload that are not shown
	Payload string
	Problem string
}

// Line returns the command line of a verb for the letter.
func (p *letterPage) Line(verb string, more ...string) string {
	return (&operate.Letters{Account: p.Account}).LettersLine(verb, []uint64{p.Sequence}, more...)
}

func newLetterPage(account string, e deadletter.Entry) *letterPage {
	l := e.Letter
	p := &letterPage{Account: account, Entry: e, Headers: headers(l.Header)}
	p.Payload, p.Hidden = readable(l.Subject, l.Payload)
	if p.Editing = e.Problem == nil && len(l.Payload) <= maxEdited && isText(l.Payload); p.Editing {
		p.Edit = string(l.Payload)
	}
	if e.Problem != nil {
		p.Problem = redact.Error(e.Problem).Error()
	}
	p.Letter.Error, p.Letter.Stack = redact.People(l.Error), redact.People(l.Stack)
	return p
}

// isText reports whether bytes are a text that people can read.
func isText(data []byte) bool {
	return utf8.Valid(data) && !bytes.ContainsFunc(data, func(r rune) bool { return unicode.IsControl(r) && !unicode.IsSpace(r) })
}

// openLetter reads the letter that a request names. Three round trips.
func (c *Console) openLetter(r *request, q url.Values) (d deadQuery, e deadletter.Entry, err error) {
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
		err = fail(http.StatusNotFound, "Letter %d is not there any more: it was replayed, discarded, or too old.", seq)
	}
	return d, e, err
}

func (c *Console) showLetter(r *request) error {
	d, e, err := c.openLetter(r, r.URL.Query())
	if err != nil {
		return err
	}
	p := newLetterPage(d.Account, e)
	r.Command = p.Line("show")
	return r.render("dead", fmt.Sprintf("Letter %d", e.Sequence), deadPage{Alone: true, Back: c.deadOf(d.Account), Letter: p})
}

func (c *Console) deadOf(account string) template.URL {
	return c.href("/dead", &operate.Letters{Account: account})
}

// planLetter replays one letter, with another payload when the form has one, or discards it.
func (c *Console) planLetter(r *request, action string) (deed, error) {
	d, e, err := c.openLetter(r, r.PostForm)
	if err != nil {
		return deed{}, err
	}
	change := operate.Change{Action: action}
	opts, past := deadletter.ReplayOptions{Each: change.Add}, "replayed"
	if action == operate.Discard {
		past = "discarded"
	} else if text := r.PostForm.Get("payload"); r.PostForm.Has("payload") {
		if !bytes.Contains(e.Letter.Payload, []byte("\r\n")) { // browsers write line breaks as \r\n
			text = strings.ReplaceAll(text, "\r\n", "\n")
		}
		if json.Valid(e.Letter.Payload) && !json.Valid([]byte(text)) {
			return deed{}, fail(http.StatusBadRequest, "The new payload is no JSON, and the one before was. Nothing was done: go back and fix it.")
		}
		opts.Edit = func(worker.DeadLetter) ([]byte, error) { return []byte(text), nil }
	}
	do := func(ctx context.Context) (int, string, error) {
		done, err := change.Run(ctx, d.js, d.store, d.Filter, opts)
		if err == nil && len(change.Problems) > 0 {
			err = fail(http.StatusConflict, "Letter %d stays: %s.", e.Sequence, change.Problems[0].Error)
		}
		return done, fmt.Sprintf("Letter %d was %s. %s", e.Sequence, past, change.Note), err
	}
	return deed{
		Action: operate.Action{Do: do, Name: action, Target: d.Target(d.Filter.Sequences)}, To: c.deadOf(d.Account),
		Of: 1, Things: "letter", Line: d.LettersLine(action, d.Filter.Sequences, "--yes"),
	}, nil
}
