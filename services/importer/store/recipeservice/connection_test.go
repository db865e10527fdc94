package recipeservice_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/store"
)

// A service, or a proxy before it, that answers a call twice is not taken to have answered the next one: each call has a
// connection of its own. On one that is kept, one in a thousand second answers was taken for another job's.
func TestNoCallComesOverTheConnectionOfAnother(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{} // calls come one after the other
	s, _ := open(t, func(w http.ResponseWriter, r *http.Request) {
		seen[r.RemoteAddr] = true
		says(http.StatusOK, fmt.Sprintf(`{"recipe_id":"recipe-%d"}`, len(seen)))(w, r)
	})
	const calls = 5
	for n := range calls {
		id, err := s.Create(t.Context(), store.Draft{JobID: "j"})
		check.That(t, err == nil && id == fmt.Sprint("recipe-", n+1), "call %d: %q, %v", n+1, id, err)
	}
	check.Same(t, "calls over connections", len(seen), calls)
}
