package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/denied"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/worker"
)

const (
	maxForm  = 1 << 20          // the number of bytes that are read of a form
	maxNotes = 1000             // the number of notes of actions that were not shown yet
	noteTime = 10 * time.Minute // for which it is kept
	pageTime = 10 * time.Second // for one page
	actTime  = 60 * time.Second // for one action
)

type request struct {
	*http.Request

	Command string // the command line that shows or does the same as the page
	Live    string // the topic of the hub whose news reload the page, "" for a page that stays as it is
	Status  int    // of the answer

	c       *Console
	seen    uint64 // news when it came
	session string // its id, "" for a caller without one
	w       http.ResponseWriter
}

// failure is an error whose text is for the reader of the page.
type failure struct {
	status int
	text   string
}

func (f *failure) Error() string { return f.text }

// fail returns an error for the reader of a page: sentences about the mistake and the remedy.
func fail(status int, format string, args ...any) error {
	return &failure{status, fmt.Sprintf(format, args...)}
}

// page adds a page. It reads, so its pattern begins with GET. parameters are the names that its address may have; others are refused.
// show calls [request.render] at its end.
func (c *Console) page(pattern string, parameters []string, show func(*request) error) {
	c.pageWithin(pattern, parameters, pageTime, show)
}

func (c *Console) pageWithin(pattern string, parameters []string, limit time.Duration, show func(*request) error) {
	c.routes.HandleFunc(rooted(pattern), func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		c.serve(w, r.WithContext(ctx), access.All(access.Read), func(r *request) error {
			if err := onlyOnce(parameters, r.URL.Query()); err != nil {
				return err
			}
			return show(r)
		})
	})
}

// rooted makes the pattern of the root match the root only.
func rooted(pattern string) string {
	if strings.HasSuffix(pattern, " /") {
		return pattern + "{$}"
	}
	return pattern
}

type deed struct {
	operate.Action

	// Filter has what the action selects by, for the question about it.
	Filter url.Values

	// Of is the number of Things (jobs, dead letters) to change, which the reader may have to type first, see [operate.Asks]; 0 asks nothing.
	// Line is the command that does the same. If nothing is asked, the note about the action shows it.
	Of           int
	Things, Line string

	// Recorded reports whether the acting service writes the record itself, in the name of the caller.
	Recorded bool

	// To is the address of the page that follows, from [Console.href]. Defaults to the page of the form.
	To template.URL
}

// action adds an action. parameters are the names that its form may have; without any, plan looks at each. plan reads the form, refuses
// mistakes, and changes nothing. Callers need the scope operate, and have to come from a page of the console. The answer is a redirect to
// a page with a note about the action, or about the conflict for which plan refuses it.
func (c *Console) action(pattern string, parameters []string, plan func(*request) (deed, error)) {
	c.routes.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), actTime)
		defer cancel()
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		c.serve(w, r.WithContext(ctx), access.All(access.Operate), func(r *request) error {
			if c.cfg.ReadOnly {
				return fail(http.StatusForbidden, "This console is read-only. Nothing was done.")
			}
			if err := r.ParseForm(); err != nil {
				return fail(http.StatusBadRequest, "The form could not be read: %v. Nothing was done.", err)
			}
			if parameters != nil {
				if err := only(parameters, r.Form); err != nil {
					return err
				}
			}
			d, err := plan(r)
			if p := mapError(err); err != nil && p.Status == http.StatusConflict && r.Referer() != "" {
				r.leave("", note{p.Detail, true}) // the page of the form says what was wrong, and keeps its filter
				return nil
			}
			if err != nil {
				return err
			}
			if d.Of > 0 && operate.Asks(d.Name, d.Of) && !operate.Confirmed(r.PostForm.Get("typed"), d.Of) {
				return r.confirm(d)
			}
			return r.act(d)
		})
	})
}

// act carries out an action with a record, and redirects to the page after it.
func (r *request) act(d deed) error {
	text := ""
	do := func(ctx context.Context) (n int, err error) {
		n, text, err = d.Do(ctx)
		return n, err
	}
	var err error
	if d.Recorded {
		_, err = do(r.Context())
	} else {
		err = r.c.cfg.Audit.Do(r.Context(), d.Name, d.Target, do)
	}
	if err != nil {
		return err
	}
	if d.Of == 0 && d.Line != "" {
		text += " The same in a shell: " + d.Line
	}
	r.leave(d.To, note{Text: text})
	return nil
}

// question is a page that asks for a number before an action.
type question struct {
	deed

	Back, Path, Typed string
	Fields            url.Values
}

// confirm answers with the question whether an action is meant. Nothing is changed until the number was typed.
func (r *request) confirm(d deed) error {
	q := question{deed: d, Back: r.Referer(), Path: r.c.cfg.Prefix + r.URL.EscapedPath(), Typed: r.PostForm.Get("typed"), Fields: r.PostForm}
	q.Fields.Del("typed")
	if q.Typed != "" {
		r.Status = http.StatusConflict
	}
	return r.render("ask", strings.ToUpper(d.Name[:1])+d.Name[1:]+" "+counted(d.Of, d.Things)+"?", q)
}

// note tells the reader of a page what was just done, or refused.
type note struct {
	Text    string
	Refused bool
}

// leave redirects to a page, or for "" to the page of the form, with a note unless it is empty.
func (r *request) leave(page template.URL, n note) {
	back, err := url.Parse(cmp.Or(string(page), r.Referer()))
	if err != nil || !strings.HasPrefix(back.Path, r.c.cfg.Prefix+"/") || strings.HasPrefix(back.Path, "//") {
		back = &url.URL{Path: r.c.cfg.Prefix + "/"}
	}
	query := back.Query()
	query.Del("note")
	if n.Text != "" {
		query.Set("note", r.c.notes.add(access.From(r.Context()).Name, n))
	}
	http.Redirect(r.w, r.Request, string(address(back.EscapedPath(), query)), http.StatusSeeOther)
}

func (c *Console) serve(w http.ResponseWriter, r *http.Request, need access.Need, answer func(*request) error) {
	ctx, stop := c.denied.Begin(r.Context())
	defer stop()
	r = r.WithContext(ctx)
	var id string
	var signedIn session
	if cookie, err := r.Cookie(cookieName); err == nil && r.Header.Get("Authorization") == "" {
		var ok bool
		if signedIn, ok = c.sessions.get(cookie.Value); ok {
			id = cookie.Value
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer "+signedIn.secret)
		}
	}
	err := c.trusted.Check(r)
	if err != nil {
		err = fail(http.StatusForbidden, "A page of another site asked for this. Nothing was done.")
	} else {
		r, err = c.cfg.Access.Admit(r, need)
		asked := id != "" && !need.IsPublic() && !errors.Is(err, access.ErrUnavailable)
		if asked && !access.From(r.Context()).Same(signedIn.caller) {
			c.sessions.remove(id)
			err = access.ErrUnknown
		}
	}
	q := &request{Request: r, Status: http.StatusOK, c: c, seen: c.hub.seen(), session: id, w: w}
	if errors.Is(err, access.ErrUnknown) && q.signIn() {
		return
	}
	if err == nil {
		err = answer(q)
	}
	denied.Failed(ctx, err)
	if denial, ok := errors.AsType[*denied.Error](context.Cause(ctx)); ok && err != nil {
		err = denial
	}
	if err != nil {
		q.fail(err)
	}
}

// fail answers with a page about the error. Details that the reader may not know are logged.
func (r *request) fail(err error) {
	p := service.ErrorMapper(mapError).Of(err)
	if p.Status >= http.StatusInternalServerError && r.Context().Err() == nil {
		r.c.cfg.Logger.WarnContext(r.Context(), "console: request failed", "path", r.URL.Path, "status", p.Status, "error", err)
	}
	r.Status, r.Live, r.Command = p.Status, "", ""
	if err := r.render("error", p.Title, p.Detail); err != nil {
		r.c.cfg.Logger.WarnContext(r.Context(), "console: a page failed", "path", r.URL.Path, "error", err)
	}
}

func mapError(err error) service.Problem {
	if f, ok := errors.AsType[*failure](err); ok {
		return service.Problem{Status: f.status, Detail: f.text}
	}
	if gone, ok := errors.AsType[operate.GoneError](err); ok {
		text := strings.ToUpper(string(gone[:1])) + string(gone[1:])
		return service.Problem{Status: http.StatusConflict, Detail: text + ". Nothing was done: look again."}
	}
	if shared, ok := errors.AsType[*worker.SharedError](err); ok {
		return service.Problem{Status: http.StatusConflict, Detail: shared.Error() + "."}
	}
	if part, ok := errors.AsType[*operate.PartError](err); ok {
		return service.Problem{Status: http.StatusServiceUnavailable, Detail: part.Error() + "."}
	}
	if denial, ok := errors.AsType[*denied.Error](err); ok {
		return service.Problem{Status: http.StatusServiceUnavailable, Detail: "NATS denies this console a request: " + denial.Error() +
			". Permit it to its user, in accounts.conf as deploy/nats has it, or do without."}
	}
	switch {
	case errors.Is(err, audit.ErrUnavailable):
		return service.Problem{Status: http.StatusServiceUnavailable, Detail: "The action could not be recorded, so nothing was done. " +
			"Look whether the stream AUDIT is there: expediter apply makes it."}
	case errors.Is(err, access.ErrForbidden):
		return service.Problem{Status: http.StatusForbidden, Detail: "Your key may not do this: seeing needs the scope read, " +
			"acting needs operate, " +
			"and a key that is bound to a user may do neither."}
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrBucketNotFound), errors.Is(err, jetstream.ErrMsgNotFound):
		return service.Problem{Status: http.StatusNotFound, Detail: "It is not there: " + err.Error() + "."}
	case errors.Is(err, context.DeadlineExceeded):
		return service.Problem{Status: http.StatusServiceUnavailable, Detail: "NATS did not answer in time. " +
			"Look whether its servers are up, and try again. " +
			"The action may have been carried out in part: see the audit."}
	}
	return service.Problem{}
}
