package service

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"strings"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/service/access"
)

// describe adds the documents: the description of the API, as JSON and as a page, and the schemas of messages. Everybody may read them.
// It panics for a file that is missing, which is a mistake of the program.
func (a *Router) describe(docs fs.FS) {
	read := func(name string) string {
		data, err := fs.ReadFile(docs, name)
		if err != nil {
			panic(fmt.Sprintf("service: %v", err))
		}
		return string(data)
	}
	const media = "application/json"
	page := read("docs.html")
	_, style, _ := strings.Cut(page, "<style>")
	style, _, _ = strings.Cut(style, "</style>")
	a.Handle("GET /docs", access.Public(), styled(style, document("text/html; charset=utf-8", page)))
	a.Handle("GET /openapi.json", access.Public(), document(media, read("openapi.json")))
	a.Handle("GET /schemas/v1/{schema}", access.Public(), func(w http.ResponseWriter, r *http.Request) error {
		name, isJSON := strings.CutSuffix(r.PathValue("schema"), ".json")
		data, err := contracts.Schema(name)
		if err != nil || !isJSON {
			return fmt.Errorf("%w: %.200q", errNoRoute, r.URL.Path)
		}
		return document(media, string(data))(w, r)
	})
}

// styled lets a page have its style, and nothing else.
func styled(style string, page func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	policy := "default-src 'none'; style-src 'sha256-" + digest(style) + "'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
	return func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Content-Security-Policy", policy)
		return page(w, r)
	}
}

// document returns a handler whose answer clients keep, and ask whether it has changed.
func document(media, text string) func(http.ResponseWriter, *http.Request) error {
	tag := `"` + digest(text) + `"`
	return func(w http.ResponseWriter, r *http.Request) error {
		h := w.Header()
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", tag)
		if strings.Contains(r.Header.Get("If-None-Match"), tag) {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
		h.Set("Content-Type", media)
		_, _ = w.Write([]byte(text)) //nolint:gosec // the program has it
		return nil
	}
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}
