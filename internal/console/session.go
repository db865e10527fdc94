package console

import (
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/expediter-io/expediter/internal/service/access"
)

const (
	cookieName  = "expediter-console"
	maxSessions = 1000
	sessionTime = 12 * time.Hour
)

// store keeps values in memory for some time under ids that nobody can guess. When it is full, the oldest values are dropped. An owner has
// a tenth at most, and then loses its own oldest values, not those of others.
type store[T any] struct {
	keep time.Duration
	most int

	mu     sync.Mutex
	order  []string
	values map[string]kept[T]
}

type kept[T any] struct {
	owner string
	until time.Time
	value T
}

func newStore[T any](most int, keep time.Duration) *store[T] {
	return &store[T]{keep: keep, most: most, values: map[string]kept[T]{}}
}

func (s *store[T]) add(owner string, value T) (id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := func(id string) bool { return s.values[id].owner == owner }
	count := 0
	for _, k := range s.values {
		if k.owner == owner {
			count++
		}
	}
	if count >= s.most/10 {
		s.drop(s.order[slices.IndexFunc(s.order, own)])
	}
	if len(s.order) >= s.most {
		s.drop(s.order[0])
	}
	id = rand.Text()
	s.order, s.values[id] = append(s.order, id), kept[T]{owner, time.Now().Add(s.keep), value}
	return id
}

func (s *store[T]) drop(id string) {
	delete(s.values, id)
	s.order = slices.DeleteFunc(s.order, func(other string) bool { return other == id })
}

func (s *store[T]) get(id string) (value T, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.values[id]
	if !ok || !time.Now().Before(k.until) {
		return value, false
	}
	return k.value, true
}

func (s *store[T]) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(id)
}

type session struct {
	caller access.Caller
	secret string // the key or token
}

type signInView struct{ Problem, To string }

// addSignIn adds the pages to sign in and out. Each request of a session is checked against its key or token: the session ends when that is
// no longer in force, or has other permissions.
func (c *Console) addSignIn() {
	c.routes.HandleFunc("GET /sign-in", func(w http.ResponseWriter, r *http.Request) {
		c.serve(w, r, access.Public(), func(r *request) error {
			return r.render("signin", "Sign in", signInView{To: c.local(r.URL.Query().Get("to"))})
		})
	})
	c.routes.HandleFunc("POST /sign-in", func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		c.serve(w, r, access.Public(), c.openSession)
	})
	c.routes.HandleFunc("POST /sign-out", func(w http.ResponseWriter, r *http.Request) {
		c.serve(w, r, access.Public(), func(r *request) error {
			r.endSession()
			r.setCookie("", -1)
			http.Redirect(w, r.Request, string(c.href("sign-in")), http.StatusSeeOther)
			return nil
		})
	})
}

// openSession answers the form to sign in.
func (c *Console) openSession(r *request) error {
	secret, to := strings.TrimSpace(r.PostFormValue("key")), c.local(r.PostFormValue("to"))
	trial := r.Clone(r.Context())
	trial.Header.Set("Authorization", "Bearer "+secret)
	admitted, err := c.cfg.Access.Admit(trial, access.All(access.Read))
	switch {
	case errors.Is(err, access.ErrUnknown):
		r.Status = http.StatusUnauthorized
		return r.render("signin", "Sign in", signInView{Problem: "This key or token is not in force. Look whether it is whole.", To: to})
	case err != nil:
		return err
	}
	r.endSession()
	caller := access.From(admitted.Context())
	r.setCookie(c.sessions.add(caller.Name, session{caller, secret}), int(sessionTime/time.Second))
	http.Redirect(r.w, r.Request, to, http.StatusSeeOther)
	return nil
}

func (r *request) endSession() {
	for _, cookie := range r.CookiesNamed(cookieName) {
		r.c.sessions.remove(cookie.Value)
	}
}

func (r *request) setCookie(value string, age int) {
	http.SetCookie(r.w, &http.Cookie{ //nolint:gosec // Secure wherever the browser speaks TLS
		HttpOnly: true, MaxAge: age, Name: cookieName, Path: r.c.cfg.Prefix + "/", SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https", Value: value,
	})
}

// signIn redirects a person to the form to sign in, and reports whether it did: other requests are not redirected.
func (r *request) signIn() bool {
	to := string(r.c.href("sign-in", query("to", r.c.cfg.Prefix+r.URL.RequestURI())))
	switch {
	case r.Header.Get("Hx-Request") != "":
		r.w.Header().Set("Hx-Redirect", string(r.c.href("sign-in")))
		r.w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html"):
		http.Redirect(r.w, r.Request, to, http.StatusSeeOther)
	default:
		return false
	}
	return true
}

// local returns an address if it belongs to the console, and otherwise that of the overview: nobody is redirected elsewhere.
func (c *Console) local(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(to, c.cfg.Prefix+"/") || strings.HasPrefix(to, "//") ||
		strings.Contains(to, `\`) {
		return string(c.href("/"))
	}
	return to
}
