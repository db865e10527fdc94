package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/denied"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/access"
	"github.com/expediter-io/expediter/pkg/service/audit"
)

const (
	maxForm  = 1 << 20          // the number of bytes that are read of a form
	maxNotes = 1000             // the number of notes of actions that were not shown yet
	noteTime = 10 * time.Minute // for which it is kept
	pageTime = 10 * time.Second // for one page
	actTime  = 60 * time.Second // for one action
)

// request is a request of a caller who may make it.
type request struct {
	*http.Request

	// Command is the command line that shows or does the same as the page.
	Command string

	// Live is the topic of the hub whose news make the page be read anew, "" for a page that stays as it is.
	Live string

	// Status is the HTTP status of the answer.
	Status int

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

// page adds a page. It reads, so its pattern begins with GET. show calls [request.render] at its end.
func (c *Console) page(pattern string, show func(*request) error) {
	c.pageWithin(pattern, pageTime, show)
}

// pageWithin is page with another time limit.
func (c *Console) pageWithin(pattern string, limit time.Duration, show func(*request) error) {
	c.routes.HandleFunc(rooted(pattern), func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		c.serve(w, r.WithContext(ctx), access.All(access.Read), show)
	})
}

// rooted makes the pattern of the root match the root only.
func rooted(pattern string) string {
	if strings.HasSuffix(pattern, " /") {
		return pattern + "{$}"
	}
	return pattern
}

// deed is an action that is carried out after it was recorded.
type deed struct {
	// Do acts, and returns the number of things it changed.
	Do func(context.Context) (int, error)

	// Note returns the text for the reader about an action on count things.
	Note func(count int) string

	// Recorded reports whether the acting service writes the record itself, in the name of the caller.
	Recorded bool

	// Target names, for the record, the thing that the deed changes, without secrets and addresses.
	Target string

	// To is the address of the page that follows, from [Console.href]. Defaults to the page of the form.
	To string
}

// action adds an action; name is its name in records. plan reads the form, refuses mistakes, and changes nothing. Callers need the scope
// operate, and have to come from a page of the console. The answer is always a redirect to a page with a note about the action.
func (c *Console) action(pattern, name string, plan func(*request) (deed, error)) {
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
			d, err := plan(r)
			if err != nil {
				return err
			}
			count := 0
			do := func(ctx context.Context) (int, error) {
				var err error
				count, err = d.Do(ctx)
				return count, err
			}
			if d.Recorded {
				_, err = do(r.Context())
			} else {
				err = c.cfg.Audit.Do(r.Context(), name, d.Target, do)
			}
			if err != nil {
				return err
			}
			r.leave(d, count)
			return nil
		})
	})
}

// leave redirects to the page after an action.
func (r *request) leave(d deed, count int) {
	to := d.To
	if back, err := url.Parse(r.Referer()); to == "" && err == nil && strings.HasPrefix(back.Path, r.c.cfg.Prefix+"/") {
		query := back.Query()
		query.Del("note")
		to = (&url.URL{Path: back.Path, RawQuery: query.Encode()}).String()
	}
	if to == "" || strings.HasPrefix(to, "//") {
		to = r.c.href("/")
	}
	if d.Note != nil {
		separator := "?"
		if strings.Contains(to, "?") {
			separator = "&"
		}
		to += separator + "note=" + r.c.notes.add(access.From(r.Context()).Name, d.Note(count))
	}
	http.Redirect(r.w, r.Request, to, http.StatusSeeOther)
}

// serve admits a request and answers it. An error has a page.
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
	denied.From(ctx).Failed(err)
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

// mapError returns the problem of an error in the words of the console.
func mapError(err error) service.Problem {
	if f, ok := errors.AsType[*failure](err); ok {
		return service.Problem{Status: f.status, Detail: f.text}
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
