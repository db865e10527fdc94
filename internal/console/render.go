package console

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
)

// views are the templates, by the names of their files.
type views map[string]*template.Template

type view struct {
	AsOf     time.Time // at which the page was made
	Can      bool      // the caller may act
	Command  string    // the command line that shows the same as the page
	Data     any       // of the screen
	Here     template.URL
	Live     string // the topic whose news reload the page
	Name     string // of the caller, "" where no keys are required
	Nav      []link
	Note     note   // about the action that was just done
	Path     string // of the page, without the prefix
	ReadOnly bool   // nobody may act
	Seen     uint64 // the number of changes before the page was made
	Title    string
	Version  string // of the program
}

// Within reports whether the page belongs to a screen.
func (v view) Within(screen string) bool {
	return screen != "/" && strings.HasPrefix(v.Path, screen+"/")
}

// parse reads the templates. Each screen is a copy of the layout with a template "screen" of its own.
func (c *Console) parse() (views, error) {
	all := views{}
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("console: templates: %w", err)
	}
	for _, name := range names {
		key := strings.TrimSuffix(path.Base(name), ".html")
		t, err := template.New("layout.html").Funcs(c.funcs()).ParseFS(files, "templates/layout.html", name)
		if err != nil {
			return nil, fmt.Errorf("console: template %s: %w", key, err)
		}
		all[key] = t
	}
	return all, nil
}

// render answers with the screen of a template under a heading: with a whole page, or with its main part when htmx asks. No round trip.
func (r *request) render(name, title string, data any) error {
	caller := access.From(r.Context())
	v := view{
		AsOf: time.Now().UTC(), Can: caller.May(access.Operate) && caller.User == "" && !r.c.cfg.ReadOnly, Command: r.Command, Data: data,
		Live: r.Live, Name: caller.Name, Path: r.URL.Path, ReadOnly: r.c.cfg.ReadOnly, Seen: r.seen, Title: title, Version: r.c.cfg.Version,
	}
	if caller.May(access.Read) && caller.User == "" {
		v.Nav = r.c.nav
	}
	query := r.URL.Query()
	if id := query.Get("note"); id != "" {
		v.Note, _ = r.c.notes.get(id)
		query.Del("note")
	}
	v.Here = address(r.c.cfg.Prefix+r.URL.EscapedPath(), query)
	part := "layout.html"
	if r.Header.Get("Hx-Request") != "" {
		part = "main"
	}
	var page bytes.Buffer
	if err := r.c.views[name].ExecuteTemplate(&page, part, v); err != nil {
		return fmt.Errorf("console: template %s: %w", name, err)
	}
	r.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	r.w.WriteHeader(r.Status)
	_, _ = r.w.Write(page.Bytes())
	return nil
}

// href returns the address of a page of the console, escaped once. Each part is a segment, whatever it contains, except a first part that
// begins with a slash, which is a path. A part of the type url.Values, or a filter, is the query. Nothing else builds addresses of pages.
func (c *Console) href(parts ...any) template.URL {
	to, query := []string{c.cfg.Prefix}, url.Values{}
	for i, part := range parts {
		switch part := part.(type) {
		case url.Values:
			maps.Copy(query, part)
			continue
		case operate.Filter:
			maps.Copy(query, operate.Query(part))
			continue
		}
		text := fmt.Sprint(part)
		if screen, ok := strings.CutPrefix(text, "/"); i == 0 && ok {
			to = append(to, strings.TrimSuffix(screen, "/"))
			continue
		}
		to = append(to, service.PathEscape(text))
	}
	return address(strings.Join(to, "/"), query)
}

// address adds a query to a path that is escaped.
func address(to string, query url.Values) template.URL {
	return template.URL(strings.TrimSuffix(to+"?"+query.Encode(), "?")) //nolint:gosec // a path of the console
}

// names returns the names of the fields of a filter without its stream, which is in the path, and more.
func names(f operate.Filter, more ...string) []string {
	for _, field := range f.Fields() {
		if field.Name != "stream" {
			more = append(more, field.Name)
		}
	}
	return more
}

// only returns an error for a value whose name is not among the parameters: whoever mistypes a filter must not see, or cancel, everything.
func only(parameters []string, values url.Values) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(parameters, name) {
			return fail(http.StatusBadRequest, "Unknown parameter %.50q. Known are: %s. Nothing was done.", name,
				cmp.Or(strings.Join(parameters, ", "), "none"))
		}
	}
	return nil
}

// onlyOnce is only for the address of a page, in which each name stands once. Each page takes the id of a note as well.
func onlyOnce(parameters []string, values url.Values) error {
	delete(values, "note")
	if err := only(parameters, values); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if len(values[name]) > 1 {
			return fail(http.StatusBadRequest, "The parameter %.50q is there twice. Want it once.", name)
		}
	}
	return nil
}

// query returns the query with names and values by turns, without those that are empty.
func query(pairs ...any) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if text := fmt.Sprint(pairs[i+1]); text != "" {
			q.Set(fmt.Sprint(pairs[i]), text)
		}
	}
	return q
}

type asset struct {
	content []byte
	sum     string
}

func readStatic() map[string]asset {
	all := map[string]asset{}
	for _, pattern := range []string{"static/*.*", "static/vendor/*.js"} {
		names, _ := fs.Glob(files, pattern) // the patterns are right
		for _, name := range names {
			content, _ := files.ReadFile(name) // it was just listed
			sum := sha256.Sum256(content)
			all[path.Base(name)] = asset{content, hex.EncodeToString(sum[:8])}
		}
	}
	return all
}

func (c *Console) serveStatic(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	a, ok := c.static[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	if r.URL.Query().Get("v") == a.sum {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(a.content))
}
