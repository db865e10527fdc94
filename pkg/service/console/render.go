package console

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/access"
)

// views are the templates, by the names of their files.
type views map[string]*template.Template

// view is the data of a template.
type view struct {
	// AsOf is the time at which the page was made.
	AsOf time.Time

	// Can reports whether the caller may act.
	Can bool

	// Command is the command line that shows the same as the page.
	Command string

	// Data is the data of the screen.
	Data any

	// Here is the address of the page, with its query.
	Here string

	// Live is the topic whose news make the page be read anew.
	Live string

	// Name is the name of the caller, "" where no keys are required.
	Name string

	// Nav are the links to the screens.
	Nav []link

	// Note tells the reader which action was just done.
	Note string

	// Path is the path of the page without the prefix.
	Path string

	// ReadOnly reports whether nobody may act.
	ReadOnly bool

	// Seen is the number of changes before the page was made.
	Seen uint64

	// Title is the heading of the page.
	Title string

	// Version is the version of the program.
	Version string
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
	if v.Here = r.c.cfg.Prefix + r.URL.EscapedPath(); len(query) > 0 {
		v.Here += "?" + query.Encode()
	}
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

// href returns the address of a page of the console. Each part is a segment, whatever it contains, except a first part that begins with a
// slash, which is a path.
func (c *Console) href(parts ...any) string {
	to := []string{c.cfg.Prefix}
	for i, part := range parts {
		text := fmt.Sprint(part)
		if screen, ok := strings.CutPrefix(text, "/"); i == 0 && ok {
			to = append(to, strings.TrimSuffix(screen, "/"))
			continue
		}
		to = append(to, service.PathEscape(text))
	}
	return strings.Join(to, "/")
}

// asset is a file that pages load.
type asset struct {
	content []byte
	sum     string
}

// readStatic reads the scripts and the style.
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
