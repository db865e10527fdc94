package unsubscribe

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"html/template"
	"net/http"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Directory is told what users do not want.
type Directory interface {
	// OptOut says that a user does not want a category on a channel any more.
	OptOut(ctx context.Context, kind contracts.RecipientType, userID, category, channel string) error
}

// Page answers those who follow a link. The answers say nothing of the user, nor whether one is known.
type Page struct {
	Directory Directory
	Links     *Links
}

// Ask answers GET with a page whose button makes the POST: programs that look at mail follow links, and must switch nothing off.
func (p *Page) Ask(w http.ResponseWriter, r *http.Request) error {
	if _, err := p.Links.Read(r.URL.Query().Get("token")); err != nil {
		return show(w, http.StatusForbidden, refused)
	}
	return show(w, http.StatusOK, asked)
}

// Do answers POST: it switches off what the link says, and may be repeated. The body does not matter: the link says it all.
func (p *Page) Do(w http.ResponseWriter, r *http.Request) error {
	s, err := p.Links.Read(r.URL.Query().Get("token"))
	if errors.Is(err, ErrLink) {
		return show(w, http.StatusForbidden, refused)
	}
	if err == nil {
		err = p.Directory.OptOut(r.Context(), s.Kind, s.UserID, s.Category, s.Channel)
	}
	if err != nil {
		return err
	}
	return show(w, http.StatusOK, done)
}

// words are those of a page.
type words struct {
	Title, Text string
	Button      bool
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

// style is the style of a page: of the colours that the reader has chosen, and wide enough to be hit on a telephone.
const style = `:root{color-scheme:light dark}
body{font:1.125rem/1.5 system-ui,sans-serif;margin:0;display:grid;min-height:100vh;place-items:center}
main{max-width:30rem;padding:1.5rem}
h1{font-size:1.5rem;line-height:1.25;margin:0 0 .5rem}
p{margin:0 0 1.5rem}
button{font:inherit;padding:.75rem 1.5rem;border:1px solid;border-radius:.5rem;cursor:pointer}`

// policy lets a page have its style, and nothing else.
var policy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
}()

// page needs no script and nothing from elsewhere.
var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
<style>` + style + `</style>
</head>
<body>
<main>
<h1>{{.Title}}</h1>
<p>{{.Text}}</p>
{{- if .Button}}
<form method="post"><button type="submit">Unsubscribe</button></form>
{{- end}}
</main>
</body>
</html>
`))

func show(w http.ResponseWriter, status int, what words) error {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", policy)
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Robots-Tag", "noindex")
	w.WriteHeader(status)
	_ = page.Execute(w, what) //nolint:errcheck // the client may have gone
	return nil
}
