package access

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stand is a file of keys that is in use.
type stand struct {
	guard *Guard
	keys  *Keys
	log   bytes.Buffer
	path  string
}

func open(t *testing.T, keys ...Key) (s *stand, secrets []string) {
	t.Helper()
	s = &stand{path: filepath.Join(t.TempDir(), "keys.json")}
	for _, k := range keys {
		secret, err := Add(s.path, k)
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, secret)
	}
	var err error
	if s.keys, err = Open("shop", s.path, slog.New(slog.NewTextHandler(&s.log, nil))); err != nil {
		t.Fatal(err)
	}
	s.guard = NewGuard(s.keys, nil)
	return s, secrets
}

func request(header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/v1/x", http.NoBody)
	for n := 0; n+1 < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	return r
}

func TestTheFileHasNoSecretAndIsItsOwnersOnly(t *testing.T) {
	t.Parallel()
	s, secrets := open(t, Key{Name: "gateway", Scopes: []Scope{Read}})
	data, err := os.ReadFile(s.path)
	info, statErr := os.Stat(s.path)
	if err != nil || statErr != nil || info.Mode().Perm() != 0o600 || bytes.Contains(data, []byte(secrets[0])) ||
		!strings.HasPrefix(secrets[0], Prefix) || len(secrets[0]) != len(Prefix)+43 {
		t.Errorf("%v %v %v %s", err, statErr, info.Mode(), data)
	}
	if left, err := filepath.Glob(s.path + "*"); err != nil || len(left) != 1 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

func TestAKeyIsTakenFromHeadersOnly(t *testing.T) {
	t.Parallel()
	s, secrets := open(t, Key{Name: "gateway", Scopes: []Scope{Read}})
	key := secrets[0]
	for name, c := range map[string]struct {
		r  *http.Request
		ok bool
	}{
		"bearer":                 {request("Authorization", "Bearer "+key), true},
		"bearer in lower case":   {request("Authorization", "bearer "+key), true},
		"WebSocket":              {request("Upgrade", "websocket", "Sec-WebSocket-Protocol", "expediter, bearer."+key), true},
		"protocol, no WebSocket": {request("Sec-WebSocket-Protocol", "expediter, bearer."+key), false},
		"basic":                  {request("Authorization", "Basic "+key), false},
		"no scheme":              {request("Authorization", key), false},
		"the hash":               {request("Authorization", "Bearer "+hash(key)), false},
		"query":                  {httptest.NewRequest(http.MethodGet, "/v1/x?key="+key+"&access_token="+key, http.NoBody), false},
		"cookie":                 {request("Cookie", "key="+key), false},
		"none":                   {request(), false},
	} {
		r, err := s.guard.Admit(c.r, All(Read))
		if (err == nil) != c.ok || (From(r.Context()).Name == "gateway") != c.ok {
			t.Errorf("%s: %v %+v", name, err, From(r.Context()))
		}
	}
}

func TestARevokedOrExpiredKeyEndsAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, secrets := open(t, Key{Name: "a", Scopes: []Scope{Read}}, Key{Name: "b", Scopes: []Scope{Read}, Expires: time.Now().Add(time.Hour)})
		go s.keys.Run(t.Context()) //nolint:errcheck // it ends without one
		a, errA := s.guard.Admit(request("Authorization", "Bearer "+secrets[0]), All(Read))
		b, errB := s.guard.Admit(request("Authorization", "Bearer "+secrets[1]), All(Read))
		if errA != nil || errB != nil || Check(a.Context()) != nil || Check(b.Context()) != nil {
			t.Fatal(errA, errB)
		}
		if err := Revoke(s.path, "a"); err != nil {
			t.Fatal(err)
		}
		<-time.After(reloadEvery + time.Second)
		if Check(a.Context()) == nil || Check(b.Context()) != nil {
			t.Errorf("revoked: %v, other: %v", Check(a.Context()), Check(b.Context()))
		}
		<-time.After(time.Hour)
		if Check(b.Context()) == nil {
			t.Error("an expired key goes on")
		}
		if _, err := s.guard.Admit(request("Authorization", "Bearer "+secrets[1]), All(Read)); err == nil {
			t.Error("an expired key is admitted")
		}
	})
}

func TestAFileWithAMistakeKeepsTheFormerKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, secrets := open(t, Key{Name: "a", Scopes: []Scope{Read}})
		go s.keys.Run(t.Context()) //nolint:errcheck // it ends without one
		good, err := os.ReadFile(s.path)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{
			"", "{}", `{"keys":[]} {}`, `{"keys":[{"name":"a","sha256":"00","scopes":["read"]}]}`,
			strings.Replace(string(good), "read", "everything", 1), strings.Replace(string(good), `"read"`, ``, 1),
			strings.Replace(string(good), `"name"`, `"usr": "x", "name"`, 1),
		} {
			if err := os.WriteFile(s.path, []byte(bad), 0o600); err != nil {
				t.Fatal(err)
			}
			<-time.After(2 * reloadEvery)
			if _, err := s.guard.Admit(request("Authorization", "Bearer "+secrets[0]), All(Read)); err != nil || s.keys.Err() == nil {
				t.Errorf("after %q: %v, reported: %v", bad, err, s.keys.Err())
			}
		}
		if err := os.WriteFile(s.path, []byte(`{"keys":[]}`), 0o600); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * reloadEvery)
		if _, err := s.guard.Admit(request("Authorization", "Bearer "+secrets[0]), All(Read)); err == nil || s.keys.Err() != nil {
			t.Errorf("no key left: %v, reported: %v", err, s.keys.Err())
		}
		synctest.Wait()
		if strings.Contains(s.log.String(), secrets[0]) {
			t.Error("the log has a secret")
		}
	})
}

func TestTwoChangesAtATimeAreRefused(t *testing.T) {
	t.Parallel()
	s, _ := open(t, Key{Name: "a", Scopes: []Scope{Read}})
	if err := os.WriteFile(s.path+".new", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Revoke(s.path, "a"); err == nil {
		t.Error("a change under way is overwritten")
	}
	if err := os.Remove(s.path + ".new"); err != nil {
		t.Fatal(err)
	}
	if _, err := Add(s.path, Key{Name: "a", Scopes: []Scope{Read}}); err == nil {
		t.Error("two keys have one name")
	}
	if err := os.Chmod(s.path, 0o602); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(s.path); err == nil {
		t.Error("a file that everybody may write is read")
	}
}
