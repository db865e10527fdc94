package pages

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// maxForm bounds the body of a form, in bytes.
const maxForm = recipient.MaxDocument

// Directory holds the preferences of users.
type Directory interface {
	// OptOut records that a user no longer wants a category on a channel.
	OptOut(ctx context.Context, kind contracts.RecipientType, userID, category, channel string) error

	// Prefer replaces the preferences of a user, over a revision of the record.
	Prefer(ctx context.Context, r contracts.Recipient, revision uint64) error

	// Read returns a user, and the revision of the record.
	Read(ctx context.Context, kind contracts.RecipientType, userID string) (recipient.Document, error)
}

var _ Directory = (*recipient.Directory)(nil)

// Site serves the page of a user's preferences: a form with their values, or the defaults of preferences that the user has not set.
// It also serves links to unsubscribe, whose answers do not reveal data of the user, nor whether the user is known.
type Site struct {
	Directory Directory
	Links     *Links
	Rules     func() *rules.Rules
}

// Show answers GET with the form.
func (p *Site) Show(w http.ResponseWriter, r *http.Request) error {
	f, err := p.form(r)
	if err == nil && r.URL.Query().Has("saved") {
		f.Notice = "Saved."
	}
	return answer(w, http.StatusOK, f, err)
}

// Save answers POST: it stores the values of the form, and redirects to the page with them. A form that is older than the
// preferences changes nothing, and the page then shows the present preferences. Save accepts only the form of
// [Site.Show].
func (p *Site) Save(w http.ResponseWriter, r *http.Request) error {
	f, err := p.form(r)
	if err != nil {
		return answer(w, http.StatusOK, f, err)
	}
	body, err := service.Body(w, r, maxForm)
	if err != nil {
		return err
	}
	values, err := url.ParseQuery(string(body))
	if state := values.Get("state"); err == nil && state != "" && state != f.State {
		return p.stale(w, r)
	}
	if err != nil || !f.fill(values) {
		return contracts.Mistake("form", "", "is not that of the page")
	}
	want, problem := f.wanted()
	if problem != "" {
		f.Notice = problem
		return answer(w, http.StatusUnprocessableEntity, f, nil)
	}
	err = p.Directory.Prefer(r.Context(), want, f.revision)
	switch {
	case errors.Is(err, recipient.ErrChanged):
		return p.stale(w, r)
	case err != nil:
		return answer(w, http.StatusOK, f, err)
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Location", "?saved=1&token="+r.URL.Query().Get("token")) // relative: the public URL may have a path
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// stale shows the present preferences to a user whose form is older.
func (p *Site) stale(w http.ResponseWriter, r *http.Request) error {
	f, err := p.form(r)
	if err == nil {
		f.Notice = "Your preferences have been changed somewhere else, so nothing was saved. The page shows them as they are now."
	}
	return answer(w, http.StatusConflict, f, err)
}

func answer(w http.ResponseWriter, status int, f *form, err error) error {
	switch {
	case errors.Is(err, ErrLink), errors.Is(err, recipient.ErrForgotten):
		return show(w, http.StatusForbidden, short, refused)
	case err != nil:
		return err
	}
	return show(w, status, long, f)
}

// form returns the form of the user of a request's link. One round trip.
func (p *Site) form(r *http.Request) (*form, error) {
	who, err := p.Links.Read(PathPreferences, r.URL.Query().Get("token"))
	if err != nil {
		return nil, err
	}
	f := &form{Title: "Your notifications", who: who}
	doc, err := p.Directory.Read(r.Context(), who.Kind, who.UserID)
	if errors.Is(err, recipient.ErrUnknown) {
		err = nil
	} else if err == nil {
		f.revision = doc.Revision
		f.stored, err = contracts.Decode[contracts.Recipient](doc.Body)
	}
	if err != nil {
		return nil, err
	}
	all, each := p.Rules().Categories(who.Kind)
	f.open(append([]rules.Category{all}, each...))
	return f, nil
}

// long is the page of preferences.
var long = page("preferences.html")

// option is an option of a list.
type option struct{ Value, Text string }

// digests are the intervals that users can choose for the digests of a category.
var digests = []option{
	{"", "As usual"},
	{"off", "Each at once"},
	{"1h", "Together, every hour"},
	{"4h", "Together, every 4 hours"},
	{"09:00", "Together, at 9:00"},
	{"09:00,17:00", "Together, at 9:00 and 17:00"},
}

// chosen returns digests with the user's present choice, which may be another if a program set it.
func chosen(wish string) []option {
	if slices.ContainsFunc(digests, func(o option) bool { return o.Value == wish }) {
		return digests
	}
	return append(slices.Clip(digests), option{wish, "Together: " + wish})
}

// Ask answers GET with a page whose button makes the POST, because programs that scan mail follow links, and must
// switch nothing off.
func (p *Site) Ask(w http.ResponseWriter, r *http.Request) error {
	s, err := p.Links.Read(PathUnsubscribe, r.URL.Query().Get("token"))
	if err != nil {
		return show(w, http.StatusForbidden, short, refused)
	}
	return p.show(w, s, asked)
}

// Do answers POST: it switches off the category and channel of the link, and may be repeated. The body is ignored.
func (p *Site) Do(w http.ResponseWriter, r *http.Request) error {
	s, err := p.Links.Read(PathUnsubscribe, r.URL.Query().Get("token"))
	if err != nil {
		return show(w, http.StatusForbidden, short, refused)
	}
	if err := p.Directory.OptOut(r.Context(), s.Kind, s.UserID, s.Category, s.Channel); err != nil {
		return err
	}
	return p.show(w, s, done)
}

// show shows words with a link to all preferences. The link is relative, because the public URL may have a path.
func (p *Site) show(w http.ResponseWriter, s Subject, page words) error {
	page.Preferences = "preferences?token=" + p.Links.Token(PathPreferences, Subject{Kind: s.Kind, UserID: s.UserID})
	return show(w, http.StatusOK, short, page)
}

// words has the words of a short page.
type words struct {
	Title, Text string
	Button      bool
	Preferences string // the URL of the preferences, "" for none
}

var (
	asked = words{
		Title: "Unsubscribe", Text: "You will get no more messages of this kind this way.", Button: true,
	}
	done = words{
		Title: "You are unsubscribed", Text: "You will get no more messages of this kind this way. You can close this page.",
	}
	refused = words{
		Title: "This link is not valid", Text: "It may have been cut off on its way. Please follow the link in the newest message.",
	}
)

// short is a page of a few words.
var short = page("unsubscribe.html")
