package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/expediter-io/expediter/pkg/redact"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

const maxEdited = 256 << 10 // bytes of a payload that a form has

// letterPage is a letter on a page.
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
	return deadCommand(verb, p.Account, deadletter.Filter{Sequences: []uint64{p.Sequence}}, more...)
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
	seq, err := strconv.ParseUint(q.Get("seq"), 10, 64)
	if err != nil || seq == 0 {
		return d, e, fail(http.StatusBadRequest, "%.30q is no letter: want its number.", q.Get("seq"))
	}
	if d, err = c.deadQuery(r, url.Values{"account": q["account"]}); err != nil {
		return d, e, err
	}
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
	return r.render("dead", fmt.Sprintf("Letter %d", e.Sequence), deadPage{
		Alone: true, Back: c.href("/dead") + accountQuery(d.Account), Letter: p,
	})
}

// planLetterReplay replays one letter, with another payload when the form has one.
func (c *Console) planLetterReplay(r *request) (deed, error) {
	d, e, err := c.openLetter(r, r.PostForm)
	if err != nil {
		return deed{}, err
	}
	opts := deadletter.ReplayOptions{Restart: r.PostForm.Get("restart") != ""}
	if texts, ok := r.PostForm["payload"]; ok {
		text := texts[0]
		if !bytes.Contains(e.Letter.Payload, []byte("\r\n")) { // browsers write line breaks as \r\n
			text = strings.ReplaceAll(text, "\r\n", "\n")
		}
		if json.Valid(e.Letter.Payload) && !json.Valid([]byte(text)) {
			return deed{}, fail(http.StatusBadRequest, "The new payload is no JSON, and the one before was. Nothing was done: go back and mend it.")
		}
		opts.Edit = func(worker.DeadLetter) ([]byte, error) { return []byte(text), nil }
	}
	return c.oneLetter(d, e, "was replayed", func(ctx context.Context, f deadletter.Filter, each eachLetter) (deadletter.Result, error) {
		opts.Each = each
		return d.store.Replay(ctx, f, opts)
	}), nil
}

// planLetterDiscard discards one letter, if its number was typed.
func (c *Console) planLetterDiscard(r *request) (deed, error) {
	d, e, err := c.openLetter(r, r.PostForm)
	if err != nil {
		return deed{}, err
	}
	if typed := r.PostForm.Get("typed"); typed != strconv.FormatUint(e.Sequence, 10) {
		return deed{}, fail(http.StatusConflict, "You typed %.20q, and the letter is %d. Nothing was discarded.", typed, e.Sequence)
	}
	return c.oneLetter(d, e, "was discarded", func(ctx context.Context, f deadletter.Filter, each eachLetter) (deadletter.Result, error) {
		return d.store.Discard(ctx, f, deadletter.DiscardOptions{Each: each})
	}), nil
}

// eachLetter is called with the outcome of each letter.
type eachLetter = func(deadletter.Outcome)

// oneLetter returns the deed of an action on one letter.
func (c *Console) oneLetter(
	d deadQuery, e deadletter.Entry, done string,
	do func(context.Context, deadletter.Filter, eachLetter) (deadletter.Result, error),
) deed {
	target := "dead letters"
	if d.Account != "" {
		target += fmt.Sprintf(" account=%q", d.Account)
	}
	return deed{
		Do: func(ctx context.Context) (int, error) {
			var kept error
			result, err := do(ctx, deadletter.Filter{Sequences: []uint64{e.Sequence}}, func(o deadletter.Outcome) { kept = o.Err })
			if err == nil && kept != nil {
				err = fail(http.StatusConflict, "Letter %d stays: %v.", e.Sequence, redact.Error(kept))
			}
			return result.Done, err
		},
		Note:   func(int) string { return fmt.Sprintf("Letter %d %s.", e.Sequence, done) },
		Target: target + fmt.Sprintf(` letters="%d"`, e.Sequence), To: c.href("/dead") + accountQuery(d.Account),
	}
}

func accountQuery(account string) string {
	if account == "" {
		return ""
	}
	return "?" + url.Values{"account": {account}}.Encode()
}
