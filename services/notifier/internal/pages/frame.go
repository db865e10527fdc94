package pages

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
)

// style is the style of all pages: of the colours that the reader has chosen, and wide enough to be hit on a telephone.
//
//go:embed style.css
var style string

// policy lets a page have its style, and nothing else.
var policy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
}()

// frame is what all pages have around their main part. They need no script and nothing from elsewhere.
var frame = template.Must(template.New("frame").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
<style>` + style + `</style>
</head>
<body>
{{template "main" .}}
</body>
</html>
`))

func show(w http.ResponseWriter, status int, page *template.Template, what any) error {
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
