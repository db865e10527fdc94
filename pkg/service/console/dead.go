package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/service/audit"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

const (
	deadLooked    = 10_000 // letters that a page reads: they take a fifth of a second
	deadParts     = 24     // parts of the time over which a group is drawn
	deadRecords   = 250    // records in which replays without an end are looked for
	deadUnended   = 4      // replays without an end that are shown
	deadRate      = 10     // letters in a second, unless a form has another rate
	rehearsed     = 5000   // letters of a dry run
	rehearsalTime = 3 * time.Second
	topicReplays  = "replays"
)

// addDead adds the pages of dead letters.
func (c *Console) addDead() {
	c.replays = &replays{audit: c.cfg.Audit, cancels: map[string]context.CancelCauseFunc{}, tell: func() { c.hub.tell(topicReplays) }}
	c.page("GET /dead", c.showDead)
	c.page("GET /dead/rehearsal", c.showRehearsal)
	c.page("GET /dead/replays", func(r *request) error {
		r.Command, r.Live = "expediter audit", topicReplays
		return r.render("deadreplays", "Replays", c.replays.list())
	})
	c.page("GET /dead/letter", c.showLetter)
	c.action("POST /dead/replay", operate.Replay, c.planReplay)
	c.action("POST /dead/discard", operate.Discard, c.planDiscard)
	c.action("POST /dead/stop", "stop", func(r *request) (deed, error) {
		id := r.PostForm.Get("id")
		return deed{
			Do: func(context.Context) (int, error) {
				if !c.replays.stop(id, errStopped) {
					return 0, fail(http.StatusConflict, "It has ended already, or goes on in another console.")
				}
				return 1, nil
			},
			Note: func(int) string { return "It stops after the letter that it is at." }, Target: "replay " + strconv.Quote(id),
		}, nil
	})
	for _, action := range []string{operate.Replay, operate.Discard} {
		c.action("POST /dead/letter/"+action, action, func(r *request) (deed, error) { return c.planLetter(r, action) })
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
var groupings = map[deadletter.Grouping]string{ //nolint:gochecknoglobals // a table
	deadletter.BySignature: "Error", deadletter.BySubject: "Subjects", deadletter.ByStream: "Stream", deadletter.ByWorker: "Worker",
}

// deadQuery is a request's selection of dead letters.
type deadQuery struct {
	operate.Letters

	By     deadletter.Grouping
	Filter deadletter.Filter

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
	if d.store, err = deadletter.Open(r.Context(), a.JetStream, deadletter.Config{}); err != nil {
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

// freeze leaves later letters out.
func (d *deadQuery) freeze() {
	if d.Until == "" {
		d.Until, d.Filter.Until = d.now.UTC().Format(time.RFC3339Nano), d.now
	}
}

// Shared names the property that the letters of a group have in common.
func (d deadQuery) Shared() string { return groupings[d.By] }

// deadRow is a group on the page.
type deadRow struct {
	deadletter.Group

	Link  string
	Times []float64
}

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

// deadPage is the page of groups.
type deadPage struct {
	deadletter.Overview
	deadQuery

	Accounts    []Account
	Alone       bool   // it shows a letter alone
	Back        string // from there
	Going       int
	Interrupted []audit.Record
	Letter      *letterPage // of the only group
	Missing     bool        // there is no stream
	Rows        []deadRow

	// The same for actions: as hidden fields of their forms, as the address of a dry run, and as command lines.
	Fields                     url.Values
	Rehearsal, Replay, Discard string
	Rate                       int
}

// Groupings are the properties by which letters can be grouped.
func (p deadPage) Groupings() []deadletter.Grouping { return slices.Sorted(maps.Keys(groupings)) }

// Kept are the parts of the filter that have no field in its form.
func (p deadPage) Kept() map[string]string {
	return map[string]string{"kind": p.Kind, "reason": p.Reason, "until": p.Letters.Until, "worker": p.Worker}
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
	for _, g := range p.Groups {
		row := deadRow{Group: g, Link: c.href("/dead") + "?" + operate.Query(d.Within(g)).Encode()}
		for _, n := range g.Times {
			row.Times = append(row.Times, float64(n))
		}
		p.Rows = append(p.Rows, row)
	}
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
	d.freeze()
	p.Fields = operate.Query(&d.Letters)
	p.Rehearsal = c.href("/dead/rehearsal") + "?" + p.Fields.Encode()
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

// look waits until the request may read letters: only a few requests do so at a time, because each costs a second of CPU time where there
// are many letters.
func (c *Console) look(ctx context.Context) (done func(), err error) {
	select {
	case c.looks <- struct{}{}:
		return func() { <-c.looks }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for other readers of letters: %w", ctx.Err())
	}
}

// survey reads the selected letters among the newest, 0 for all.
func (c *Console) survey(ctx context.Context, d deadQuery, newest uint64) (deadletter.Overview, error) {
	looked, err := c.look(ctx)
	if err != nil {
		return deadletter.Overview{}, err
	}
	defer looked()
	return d.store.Survey(ctx, d.Filter, deadletter.SurveyOptions{By: d.By, Newest: newest, Parts: deadParts})
}

// rehearsal is a dry run of a replay.
type rehearsal struct {
	operate.Change

	Partial bool // it did not come to its end
}

// showRehearsal shows the outcome that a replay would have. Four round trips for each letter, for three seconds at most.
func (c *Console) showRehearsal(r *request) error {
	d, err := c.deadQuery(r, r.URL.Query())
	if err != nil {
		return err
	}
	looked, err := c.look(r.Context())
	if err != nil {
		return err
	}
	defer looked()
	ctx, cancel := context.WithTimeout(r.Context(), rehearsalTime)
	defer cancel()
	p := rehearsal{Change: operate.Change{DryRun: true}}
	_, err = p.Run(ctx, d.store, d.Filter, deadletter.ReplayOptions{Each: p.Add, Limit: rehearsed})
	if err != nil && ctx.Err() == nil {
		return err
	}
	p.Partial = err != nil || p.Over() == rehearsed
	r.Command = d.LettersLine(operate.Replay, nil)
	return r.render("deadrehearsal", "Dry run", p)
}

// planReplay replays the letters that a filter selects, in the background.
func (c *Console) planReplay(r *request) (deed, error) {
	rate, err := strconv.ParseFloat(r.PostForm.Get("rate"), 64)
	if err != nil || rate <= 0 || rate > 100_000 {
		return deed{}, fail(http.StatusBadRequest, "The rate is %.20q: want letters in a second, such as 10. Nothing was done.",
			r.PostForm.Get("rate"))
	}
	d, err := c.deadQuery(r, r.PostForm)
	if err != nil {
		return deed{}, err
	}
	d.freeze()
	o, err := c.survey(r.Context(), d, deadLooked)
	if err != nil {
		return deed{}, err
	}
	switch {
	case o.Partial:
		o.Total = 0
	case o.Total == 0:
		return deed{}, fail(http.StatusConflict, "No letter is left that this selects. Nothing was done.")
	}
	return c.background(replay{Change: operate.Change{Action: operate.Replay}, deadQuery: d, Rate: rate, Total: o.Total}), nil
}

// background returns the deed that starts a replay in the background. The replay writes its record itself.
func (c *Console) background(p replay) deed {
	return deed{
		Do: func(ctx context.Context) (int, error) { return 0, c.replays.start(ctx, p) }, Recorded: true, To: c.href("/dead/replays"),
	}
}

// planDiscard discards the letters that a filter selects, if their number was typed. It reads all letters.
func (c *Console) planDiscard(r *request) (deed, error) {
	d, err := c.deadQuery(r, r.PostForm)
	if err != nil {
		return deed{}, err
	}
	d.freeze()
	o, err := c.survey(r.Context(), d, 0)
	if err != nil {
		return deed{}, err
	}
	if typed := r.PostForm.Get("typed"); o.Total == 0 || typed != strconv.Itoa(o.Total) && typed != number(o.Total) {
		return deed{}, fail(http.StatusConflict, "You typed %.20q, and this selects %s letters now. Nothing was discarded.",
			typed, number(o.Total))
	}
	return c.background(replay{Change: operate.Change{Action: operate.Discard}, deadQuery: d, Total: o.Total}), nil
}
