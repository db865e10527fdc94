package console

import (
	"crypto/sha256"
	"encoding/hex"
	"html"
	"html/template"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The scripts of pages are the files that their authors have published: htmx.org 2.0.8 and htmx-ext-sse 2.2.4, as npm has them.
func TestScriptsAreAsPublished(t *testing.T) {
	t.Parallel()
	all := readStatic()
	for name, want := range map[string]string{
		"htmx.min.js": "22283ef68cb7545914f0a88a1bdedc7256a703d1d580c1d255217d0a50d31313",
		"sse.min.js":  "98a46496de0c3605fbffdce9167ba427bdd9553184f83f149c261891a92c0136",
	} {
		sum := sha256.Sum256(all[name].content)
		got := hex.EncodeToString(sum[:])
		check.That(t, got == want, "%s has the sum %s, want %s", name, got, want)
	}
}

// An address has each part once escaped, whatever it contains, in a link, in an attribute for htmx and in a redirect.
func TestAddressesAreEscapedOnce(t *testing.T) {
	t.Parallel()
	c := &Console{cfg: Config{Prefix: "/ops"}}
	page := template.Must(template.New("").Funcs(c.funcs()).Parse(
		`<a href="{{href "/jobs" . . (query "subject" . "none" "")}}" hx-get="{{href "/jobs" . . (query "subject" .)}}">`))
	for _, text := range []string{
		"demo.drop.>", "*", "a&b=c", "?", "#", "100%", "%3E", "a+b", `"`, "'", "two words", "a/b", "דנה.חדשות", "..", ".", "<b>", "{x}", "a;b", "\\",
	} {
		var made strings.Builder
		check.OK(t, page.Execute(&made, text))
		for _, quoted := range regexp.MustCompile(`"([^"]*)"`).FindAllStringSubmatch(made.String(), -1) {
			asked := httptest.NewRequestWithContext(t.Context(), http.MethodGet, html.UnescapeString(quoted[1]), http.NoBody)
			routes := http.NewServeMux()
			routes.HandleFunc("GET /ops/jobs/{a}/{b}", func(_ http.ResponseWriter, r *http.Request) {
				check.Equal(t, []string{r.PathValue("a"), r.PathValue("b"), r.URL.Query().Get("subject")}, []string{text, text, text})
				check.Equal(t, len(r.URL.Query()), 1, "parameters of "+quoted[1])
			})
			answer := httptest.NewRecorder()
			routes.ServeHTTP(answer, asked)
			check.Equal(t, answer.Code, http.StatusOK, "status of "+quoted[1])
		}
	}
	check.Equal(t, c.href("/dead", &operate.DeadLetters{Subject: "a.>"}), "/ops/dead?subject=a.%3E", "a filter")
}

func TestFiguresForPeople(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		number(7): "7", number(uint64(1234567)): "1,234,567", number(-1000): "-1,000",
		size(1 << 30): "1 GiB", size(uint64(1536)): "1.5 KiB",
		span(40 * time.Millisecond): "40 ms", span(90 * time.Second): "90 s", span(5 * time.Hour): "5 h", span(-time.Second): "0 ms",
		string(stamp(time.Time{})): "–", string(badge("<b>")): `<span class="badge ">&lt;b&gt;</span>`,
		string(badge(worker.StateRetrying)):        `<span class="badge warn">retrying</span>`,
		readableTokens("a.=ZXZ0IDE.*.=no token.>"): `a."evt 1".*.=no token.>`,
	} {
		check.That(t, got == want, "got %q, want %q", got, want)
	}
}

// The oldest make room, those of an owner that has a tenth of it only for its own, and nothing stays for longer than its time.
func TestStoreIsBounded(t *testing.T) {
	t.Parallel()
	s := newStore[int](20, time.Hour)
	has := func(id string, want int) {
		t.Helper()
		v, ok := s.get(id)
		check.That(t, ok == (want > 0) && v == want, "got %d, %t, want %d", v, ok, want)
	}
	first := s.add("viewer", 1)
	for n := range 100 {
		s.remove(s.add("flood", 1))
		last := s.add("flood", n+1)
		has(last, n+1)
	}
	has(first, 1)
	check.That(t, len(s.values) == 3 && len(s.order) == 3, "%v, %v", s.values, s.order)
	for n := range 9 {
		s.add(strconv.Itoa(n), 1)
		s.add(strconv.Itoa(n), 1)
	}
	has(first, 0)
	check.That(t, len(s.values) == 20, "%v", s.values)
	s = newStore[int](20, 0)
	check.That(t, s.add("viewer", 1) == "" || len(s.values) == 1, "%v", s.values)
}

// A page that is slow hears of the last news, once.
func TestHubTellsSlowPagesOnce(t *testing.T) {
	t.Parallel()
	h := newHub()
	slow, stop := h.follow(page{topic: "a"}, 0)
	other, stopOther := h.follow(page{topic: "b"}, 0)
	for range 13 {
		h.tell("a")
	}
	<-slow
	check.Equal(t, len(slow), 0, "news that were told")
	h.tell("a")
	check.Equal(t, len(slow), 1, "news")
	seen := h.seen()
	if late, stop := h.follow(page{topic: "a"}, seen-1); len(late) != 1 {
		t.Error("a change between a page and its stream is lost")
	} else {
		stop()
	}
	if late, stop := h.follow(page{topic: "a"}, seen); len(late) != 0 {
		t.Error("a change that the page has is sent again")
	} else {
		stop()
	}
	stop()
	stopOther()
	h.tell("b")
	check.That(t, len(other) == 0 && len(h.open) == 0, "it follows after its end")
}
