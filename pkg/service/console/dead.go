package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/service/audit"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

// Names of actions in the audit, the same as those of expediter dead.
const (
	actionDiscard = "discard"
	actionReplay  = "replay"
)

const (
	deadLooked   = 10_000 // letters that a page reads: they take a fifth of a second
	deadParts    = 24     // parts of the time over which a group is drawn
	deadRecords  = 250    // records in which interrupted replays are looked for
	deadRate     = 10     // letters in a second, unless a form has another rate
	maxBroken    = 4      // interrupted replays that are shown
	topicReplays = "replays"
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
	c.action("POST /dead/replay", actionReplay, c.planReplay)
	c.action("POST /dead/discard", actionDiscard, c.planDiscard)
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
	c.action("POST /dead/letter/replay", actionReplay, c.planLetterReplay)
	c.action("POST /dead/letter/discard", actionDiscard, c.planLetterDiscard)
}

// account returns the account with a name. A page without a name is about the first account; an action has to name the account where there
// are several.
func (c *Console) account(r *request, name string) (Account, error) {
	for _, a := range c.cfg.Accounts {
		if a.Name == name || name == "" && (r.Method == http.MethodGet || len(c.cfg.Accounts) == 1) {
			return a, nil
		}
	}
	return Account{}, fail(http.StatusNotFound, "There is no account %.50q here.", name)
}

// deadQuery is a request's selection of dead letters.
type deadQuery struct {
	Account string
	By      deadletter.Grouping
	Filter  deadletter.Filter
	Raw     url.Values // as it was written

	now   time.Time // of the server
	store *deadletter.Store
}

// deadQuery reads the selection of a request, and opens the letters. Two round trips.
func (c *Console) deadQuery(r *request, q url.Values) (d deadQuery, err error) {
	a, err := c.account(r, q.Get("account"))
	if err != nil {
		return d, err
	}
	if d.store, err = deadletter.Open(r.Context(), a.JetStream, deadletter.Config{}); err != nil {
		return d, err
	}
	if d.now, err = d.store.Now(r.Context()); err != nil {
		return d, err
	}
	d.Account, d.By, d.Raw = a.Name, deadletter.Grouping(q.Get("by")), url.Values{}
	if d.Shared() == "" {
		d.By = deadletter.BySignature
	}
	d.Filter, err = parseFilter(q, d.now)
	for _, name := range deadNames {
		if text := q.Get(name); text != "" {
			d.Raw.Set(name, text)
		}
	}
	return d, err
}

// Get returns the text of a parameter as it was written.
func (d deadQuery) Get(name string) string { return d.Raw.Get(name) }

// within is the query of a narrower filter: times stay as they were written, so that "24h" goes on to mean the last day.
func (d deadQuery) within(f deadletter.Filter) string {
	q := filterQuery(f)
	for _, name := range []string{"account", "since", "until"} {
		q.Del(name)
		if text := d.Raw.Get(name); text != "" {
			q.Set(name, text)
		}
	}
	return q.Encode()
}

// frozen returns the filter of the present letters, without later ones.
func (d deadQuery) frozen() deadletter.Filter {
	f := d.Filter
	if f.Until.IsZero() {
		f.Until = d.now
	}
	return f
}

// deadRow is a group on the page.
type deadRow struct {
	deadletter.Group

	Link  string
	Times []float64
}

// Shared names the property that the letters of a group have in common.
func (d deadQuery) Shared() string {
	return map[deadletter.Grouping]string{
		deadletter.BySignature: "Error", deadletter.BySubject: "Subjects", deadletter.ByStream: "Stream", deadletter.ByWorker: "Worker",
	}[d.By]
}

// Name is the value of that property.
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

	Accounts []Account
	Alone    bool   // it shows a letter alone
	Back     string // from there
	Broken   []brokenReplay
	Going    int
	Letter   *letterPage // of the only group
	Missing  bool        // there is no stream
	Rows     []deadRow
	Select   selection
}

// Filtered reports whether the page leaves letters out.
func (p deadPage) Filtered() bool { return len(filterQuery(p.Filter)) > 0 }

// Groupings are the properties by which letters can be grouped.
func (p deadPage) Groupings() []deadletter.Grouping {
	return []deadletter.Grouping{deadletter.BySignature, deadletter.BySubject, deadletter.ByStream, deadletter.ByWorker}
}

// Kept are the parts of the filter that have no field in its form.
func (p deadPage) Kept() (all [][2]string) {
	for _, name := range []string{"kind", "reason", "until", "worker"} {
		if text := p.Get(name); text != "" {
			all = append(all, [2]string{name, text})
		}
	}
	return all
}

// Windows are the times that the form offers, and the chosen time.
func (p deadPage) Windows() [][2]string {
	all := [][2]string{{"", "at any time"}, {"1h", "in the last hour"}, {"24h", "in the last day"}, {"7d", "in the last 7 days"}}
	since := p.Get("since")
	if !slices.ContainsFunc(all, func(w [2]string) bool { return w[0] == since }) {
		all = append(all, [2]string{since, "since " + since})
	}
	return all
}

// selection is the filter of actions, as hidden fields of their forms.
type selection struct {
	Discard   string // the command line that does the same
	Fields    url.Values
	Link      string
	Partial   bool
	Rate      int
	Rehearsal string
	Replay    string // as Discard
	Total     int
}

// brokenReplay is a replay that has not come to its end.
type brokenReplay struct {
	replay

	Left selection // none when Total is 0
	Lost bool      // its letters are not known
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
	p := deadPage{Accounts: c.cfg.Accounts, deadQuery: d}
	var by []string
	if d.By != deadletter.BySignature {
		by = []string{"--by", string(d.By)}
	}
	if p.Overview, err = c.survey(r.Context(), d, d.Filter, d.By, deadLooked); err != nil {
		return err
	}
	for _, g := range p.Groups {
		row := deadRow{Group: g, Link: c.href("/dead") + "?" + d.within(g.Filter(d.Filter))}
		for _, n := range g.Times {
			row.Times = append(row.Times, float64(n))
		}
		p.Rows = append(p.Rows, row)
	}
	p.Select = c.selection(d.Account, d.frozen(), p.Overview)
	if len(p.Groups) == 1 && p.Others == 0 {
		e, err := d.store.Get(r.Context(), p.Groups[0].Example)
		if err == nil {
			p.Letter = newLetterPage(d.Account, e)
		} else if !errors.Is(err, deadletter.ErrNotFound) {
			return err
		}
	}
	for _, one := range c.replays.list() {
		if one.Ended.IsZero() {
			p.Going++
		}
	}
	if p.Broken, err = c.brokenReplays(r.Context(), d); err != nil {
		return err
	}
	r.Command = deadCommand("groups", d.Account, d.Filter, by...)
	return r.render("dead", "Dead letters", p)
}

func (c *Console) selection(account string, f deadletter.Filter, o deadletter.Overview) selection {
	fields := filterQuery(f)
	if account != "" {
		fields.Set("account", account)
	}
	query := "?" + fields.Encode()
	return selection{
		Discard: deadCommand(actionDiscard, account, f, "--yes"),
		Replay:  deadCommand(actionReplay, account, f, "--rate", strconv.Itoa(deadRate), "--yes"),
		Fields:  fields, Link: c.href("/dead") + query, Partial: o.Partial, Rate: deadRate, Rehearsal: c.href("/dead/rehearsal") + query,
		Total: o.Total,
	}
}

// brokenReplays returns the replays that did not come to their end, by the records of the audit, and their remaining letters.
func (c *Console) brokenReplays(ctx context.Context, d deadQuery) (all []brokenReplay, err error) {
	if c.cfg.Audit == nil {
		return nil, nil
	}
	records, err := audit.List(ctx, c.own, deadRecords)
	if err != nil {
		return nil, err
	}
	for _, p := range c.replays.broken(records, d.Account) {
		if len(all) == maxBroken {
			break
		}
		b := brokenReplay{replay: p}
		if err := c.resolve(ctx, d, &b); err != nil {
			return nil, err
		}
		if b.Lost || b.Left.Total > 0 {
			all = append(all, b)
		}
	}
	return all, nil
}

// resolve finds the letters of a record among the present letters. The record has only the fingerprint of their signature.
func (c *Console) resolve(ctx context.Context, d deadQuery, b *brokenReplay) error {
	f := b.Filter
	signature := f.Signature
	f.Signature = ""
	if text := d.Filter.Subject; f.Subject != text && matches(f.Subject, text) {
		f.Subject = text
	}
	if b.Lost = strings.HasPrefix(f.Subject, fingerprintPrefix); b.Lost {
		return nil
	}
	looked := uint64(deadLooked)
	if signature == "" { // then only their number is wanted
		looked = rehearsed
	}
	o, err := c.survey(ctx, d, f, deadletter.BySignature, looked)
	if err != nil || signature == "" {
		b.Left = c.selection(d.Account, f, o)
		return err
	}
	for _, g := range o.Groups {
		if matches(signature, g.Signature) {
			f.Signature, o.Total = g.Signature, g.Count
			b.Left = c.selection(d.Account, f, o)
			return nil
		}
	}
	return nil
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
	o, err := c.survey(r.Context(), d, d.frozen(), deadletter.BySignature, deadLooked)
	if err != nil {
		return deed{}, err
	}
	if o.Total == 0 && !o.Partial {
		return deed{}, fail(http.StatusConflict, "No letter is left that this selects. Nothing was done.")
	}
	if o.Partial {
		o.Total = 0
	}
	return c.background(replay{Account: d.Account, Action: actionReplay, Filter: d.frozen(), Rate: rate, Total: o.Total}, d), nil
}

// background returns the deed that starts a replay in the background. The replay writes its record itself.
func (c *Console) background(p replay, d deadQuery) deed {
	return deed{
		Do: func(ctx context.Context) (int, error) { return 0, c.replays.start(ctx, p, d.store) }, Recorded: true, To: c.href("/dead/replays"),
	}
}

// planDiscard discards the letters that a filter selects, if their number was typed. It reads all letters.
func (c *Console) planDiscard(r *request) (deed, error) {
	d, err := c.deadQuery(r, r.PostForm)
	if err != nil {
		return deed{}, err
	}
	o, err := c.survey(r.Context(), d, d.frozen(), deadletter.BySignature, 0)
	if err != nil {
		return deed{}, err
	}
	if typed := r.PostForm.Get("typed"); o.Total == 0 || typed != strconv.Itoa(o.Total) && typed != number(o.Total) {
		return deed{}, fail(http.StatusConflict, "You typed %.20q, and this selects %s letters now. Nothing was discarded.",
			typed, number(o.Total))
	}
	return c.background(replay{Account: d.Account, Action: actionDiscard, Filter: d.frozen(), Total: o.Total}, d), nil
}
