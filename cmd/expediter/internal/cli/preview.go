package cli

import (
	"bytes"
	_ "embed" // the page
	"encoding/json"
	"errors"
	"html/template"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/private"
	"github.com/expediter-io/expediter/services/notifier/channel"
	texts "github.com/expediter-io/expediter/services/notifier/template"
)

// preview renders templates, each in every locale and on every channel, before they are used, on one page.
type preview struct {
	Data      map[string]json.RawMessage // payloads by the names of templates
	Locales   []string                   // of the readers; defaults to those for which a template has texts
	Templates *texts.Set
}

// shown is the text of one template for one reader on one channel.
type shown struct {
	texts.Text

	Template, Locale, Channel string
	Kind                      texts.Kind
	Data                      string // of a push, on several lines
	Problem                   string
}

// digestName stands for the text of digests without a template.
const digestName = "digest (built in)"

const page = "index.html"

// at is the time of all messages, so that pages differ only by their templates.
var at = time.Date(2026, 1, 15, 9, 30, 0, 0, time.UTC)

// writeTo makes all texts, and writes a page that shows them into a folder. It returns the path of the page, and the texts
// that could not be made.
func (cfg preview) writeTo(folder string) (path string, failed []shown, err error) {
	var all []shown
	names := cfg.Templates.Names()
	for name := range cfg.Data {
		if !slices.Contains(names, name) {
			failed = append(failed, shown{Template: name, Problem: "there is no such template, but data for it"})
		}
	}
	slices.SortFunc(failed, func(a, b shown) int { return strings.Compare(a.Template, b.Template) })
	for _, name := range append(names, digestName) {
		locales := cfg.Locales
		if len(locales) == 0 {
			locales = cfg.Templates.Locales(name)
		}
		for _, locale := range locales {
			for on, kind := range cfg.Templates.Channels() {
				one, found := cfg.show(name, locale, on, kind)
				if !found {
					continue
				}
				if one.Problem != "" {
					failed = append(failed, one)
				}
				all = append(all, one)
			}
		}
	}
	if err := private.Open(folder); err != nil {
		return "", nil, err
	}
	var out bytes.Buffer
	if err := layout.Execute(&out, all); err != nil {
		return "", nil, err
	}
	path = filepath.Join(folder, page)
	return path, failed, os.WriteFile(path, out.Bytes(), 0o600)
}

// show makes one text. found is false when the template has no text for the channel.
func (cfg preview) show(name, locale, on string, kind texts.Kind) (s shown, found bool) {
	s = shown{Template: name, Locale: locale, Channel: on, Kind: kind}
	m := channel.Message{
		Category: "sample", CreatedAt: at, EventID: "sample", EventType: name, Locale: locale, Payload: cfg.Data[name],
		RecipientType: "CUSTOMER", Template: name, UserID: "sample",
	}
	if locale == "default" {
		m.Locale = ""
	}
	if name == digestName {
		m.EventType, m.Payload = channel.EventTypeDigest, cfg.digest()
	}
	made, err := cfg.Templates.Render(m, on, "https://notify.example.com/v1/unsubscribe?token=sample")
	switch {
	case errors.Is(err, texts.ErrNotFound):
		return s, false
	case err != nil:
		s.Problem = err.Error()
	}
	s.Text = made
	if made.Data != nil {
		var data bytes.Buffer
		if json.Indent(&data, made.Data, "", "  ") == nil {
			s.Data = data.String()
		}
	}
	return s, true
}

// digest returns the payload of a digest with an event for each template with data.
func (cfg preview) digest() json.RawMessage {
	var items []map[string]any
	for _, name := range cfg.Templates.Names() {
		if data := cfg.Data[name]; data != nil {
			items = append(items, map[string]any{"event_type": name, "created_at": at, "payload": data})
		}
	}
	data, err := json.Marshal(map[string]any{"count": len(items), "items": items, "more": 0})
	if err != nil {
		return nil // a value that was read from JSON can be written
	}
	return data
}

//go:embed preview.html
var pageHTML string

var layout = template.Must(template.New(page).Parse(pageHTML))
