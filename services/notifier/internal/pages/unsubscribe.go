package pages

import (
	"context"
	"errors"
	"html/template"
	"net/http"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Refuser is told what users do not want.
type Refuser interface {
	// OptOut says that a user does not want a category on a channel any more.
	OptOut(ctx context.Context, kind contracts.RecipientType, userID, category, channel string) error
}

// Unsubscribe answers those who follow a link to unsubscribe. The answers say nothing of the user, nor whether one is known.
type Unsubscribe struct {
	Directory Refuser
	Links     *Links
}

// Ask answers GET with a page whose button makes the POST: programs that look at mail follow links, and must switch nothing off.
func (p *Unsubscribe) Ask(w http.ResponseWriter, r *http.Request) error {
	s, err := p.Links.Read(PathUnsubscribe, r.URL.Query().Get("token"))
	if err != nil {
		return show(w, http.StatusForbidden, short, refused)
	}
	return p.show(w, s, asked)
}

// Do answers POST: it switches off what the link says, and may be repeated. The body does not matter: the link says it all.
func (p *Unsubscribe) Do(w http.ResponseWriter, r *http.Request) error {
	s, err := p.Links.Read(PathUnsubscribe, r.URL.Query().Get("token"))
	if errors.Is(err, ErrLink) {
		return show(w, http.StatusForbidden, short, refused)
	}
	if err == nil {
		err = p.Directory.OptOut(r.Context(), s.Kind, s.UserID, s.Category, s.Channel)
	}
	if err != nil {
		return err
	}
	return p.show(w, s, done)
}

// show shows words with a link to all preferences: one that is relative, as the public URL may have a path.
func (p *Unsubscribe) show(w http.ResponseWriter, s Subject, what words) error {
	what.Preferences = "preferences?token=" + p.Links.Token(PathPreferences, Subject{Kind: s.Kind, UserID: s.UserID})
	return show(w, http.StatusOK, short, what)
}

// words are those of a short page.
type words struct {
	Title, Text string
	Button      bool
	Preferences string // where the preferences are, "" for nowhere
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
var short = template.Must(template.Must(frame.Clone()).Parse(`{{define "main"}}<main>
<h1>{{.Title}}</h1>
<p>{{.Text}}</p>
{{- if .Button}}
<form method="post"><button type="submit">Unsubscribe</button></form>
{{- end}}
{{- with .Preferences}}
<p><a href="{{.}}">Choose what you get</a></p>
{{- end}}
</main>{{end}}`))
