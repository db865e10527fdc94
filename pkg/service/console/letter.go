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

	"github.com/expediter-io/expediter/internal/operate"
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

// deadOf returns the address of the letters of an account.
func (c *Console) deadOf(account string) string {
	return strings.TrimSuffix(c.href("/dead")+"?"+operate.Query(&operate.Letters{Account: account}).Encode(), "?")
}

// planLetter replays one letter, with another payload when the form has one, or discards it, if its number was typed.
func (c *Console) planLetter(r *request, action string) (deed, error) {
	d, e, err := c.openLetter(r, r.PostForm)
	if err != nil {
		return deed{}, err
	}
	change := operate.Change{Action: action}
	opts, past := deadletter.ReplayOptions{Each: change.Add}, "replayed"
	if action == operate.Discard {
		past = "discarded"
		if typed := r.PostForm.Get("typed"); typed != strconv.FormatUint(e.Sequence, 10) {
			return deed{}, fail(http.StatusConflict, "You typed %.20q, and the letter is %d. Nothing was discarded.", typed, e.Sequence)
		}
	} else if text := r.PostForm.Get("payload"); r.PostForm.Has("payload") {
		if !bytes.Contains(e.Letter.Payload, []byte("\r\n")) { // browsers write line breaks as \r\n
			text = strings.ReplaceAll(text, "\r\n", "\n")
		}
		if json.Valid(e.Letter.Payload) && !json.Valid([]byte(text)) {
			return deed{}, fail(http.StatusBadRequest, "The new payload is no JSON, and the one before was. Nothing was done: go back and mend it.")
		}
		opts.Edit = func(worker.DeadLetter) ([]byte, error) { return []byte(text), nil }
	}
	return deed{
		Do: func(ctx context.Context) (int, error) {
			done, err := change.Run(ctx, d.store, d.Filter, opts)
			if err == nil && len(change.Problems) > 0 {
				err = fail(http.StatusConflict, "Letter %d stays: %s.", e.Sequence, change.Problems[0].Error)
			}
			return done, err
		},
		Note:   func(int) string { return fmt.Sprintf("Letter %d was %s.", e.Sequence, past) },
		Target: d.Target(d.Filter.Sequences), To: c.deadOf(d.Account),
	}, nil
}
