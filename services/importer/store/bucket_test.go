package store_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) *store.Bucket {
	t.Helper()
	_, js := natstest.Connect(t, natstest.Server(t))
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), provision.Options{})))
	return check.Must(store.New(js, slog.New(slog.DiscardHandler)))(t)
}

// Many lists at a time all succeed, and a record that cannot be read is left out of them, logged and counted.
func TestManyListsAndABadRecord(t *testing.T) {
	t.Parallel()
	const lists, recipes = 50, 30
	_, js := natstest.Connect(t, natstest.Server(t))
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), provision.Options{})))
	var log bytes.Buffer
	s := check.Must(store.New(js, slog.New(slog.NewTextHandler(&log, nil))))(t)
	for n := range recipes {
		check.OK(t, check.Err(s.Create(t.Context(), draft(fmt.Sprint(n), "ada", "Soup", "leek"))))
	}
	check.OK(t, check.Err(js.Publish(t.Context(), "$KV.recipes.owner.ada.bad", []byte("{"))))
	var wg sync.WaitGroup
	for range lists {
		wg.Go(func() {
			list, _, err := s.List(t.Context(), store.Query{OwnerID: "ada"})
			check.That(t, err == nil && len(list) == recipes, "%d recipes, %v", len(list), err)
		})
	}
	wg.Wait()
	for n := range 1100 { // more than the server sends at once
		check.OK(t, check.Err(js.PublishAsync("$KV.recipes.owner.eve."+fmt.Sprint(n), []byte("{}"))))
	}
	<-js.PublishAsyncComplete()
	list, more, err := s.List(t.Context(), store.Query{OwnerID: "eve"})
	check.That(t, err == nil && len(list) == store.MaxList && more, "%d recipes, %t, %v", len(list), more, err)
	check.Contains(t, log.String(), "owner_id=ada records=1")
}

func draft(jobID, owner, title, item string) store.Draft {
	return store.Draft{JobID: jobID, OwnerID: owner, Recipe: recipe.Recipe{
		Title: title, Ingredients: []recipe.Ingredient{{Item: item}}, Steps: []recipe.Step{{Index: 1, Text: "Mix."}},
	}}
}

// When many callers create different recipes of a job at the same time, there is one, and all get its id.
func TestAJobHasOneRecipe(t *testing.T) {
	t.Parallel()
	s := open(t)
	var wg sync.WaitGroup
	for n := range 20 {
		wg.Go(func() {
			id, err := s.Create(t.Context(), draft("j1", "ada", fmt.Sprintf("Soup %d", n), "leek"))
			check.That(t, err == nil && id == store.RecipeID("j1"), "%s, %v", id, err)
		})
	}
	wg.Wait()
	list, more, err := s.List(t.Context(), store.Query{OwnerID: "ada"})
	check.Require(t, err == nil && !more && len(list) == 1, "%+v, %t, %v", list, more, err)
	stored, err := s.Get(t.Context(), list[0].ID)
	check.That(t, err == nil && stored.Recipe.Title == list[0].Title, "%+v, %v: the list has %q", stored, err, list[0].Title)
	err = check.Err(s.Create(t.Context(), draft("j1", "eve", "Stew", "leek")))
	check.That(t, err != nil && !store.Retryable(err), "another owner's job of the same id has the recipe: %v", err)
}

func TestListAndSearchAreTheOwners(t *testing.T) {
	t.Parallel()
	s := open(t)
	for n, d := range []store.Draft{
		draft("1", "ada", "Leek soup", "leek"), draft("2", "ada", "Pancakes", "Wheat flour"), draft("3", "*", "Onion soup", "onion"),
		draft("4", "eve", "Stone soup", "stone"), draft("5", "ada", "Crème brûlée", "cream"),
	} {
		_, err := s.Create(t.Context(), d)
		check.Require(t, err == nil, "%v %v", n, err)
	}
	for _, c := range []struct {
		query store.Query
		want  []string
		more  bool
	}{
		{store.Query{OwnerID: "ada"}, []string{"5", "2", "1"}, false},
		{store.Query{OwnerID: "ada", Limit: 2}, []string{"5", "2"}, true},
		{store.Query{OwnerID: "ada", Text: "SOUP"}, []string{"1"}, false},
		{store.Query{OwnerID: "ada", Text: "pan flour"}, []string{"2"}, false},
		{store.Query{OwnerID: "ada", Text: "crème"}, []string{"5"}, false},
		{store.Query{OwnerID: "*"}, []string{"3"}, false},
		{store.Query{OwnerID: "nobody"}, nil, false},
	} {
		list, more, err := s.List(t.Context(), c.query)
		check.OK(t, err)
		var got []string
		for _, r := range list {
			got = append(got, r.JobID)
		}
		diff := cmp.Diff(c.want, got)
		check.That(t, diff == "" && more == c.more, "%+v: more %t, %s", c.query, more, diff)
	}
}

func TestGetOfNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, id := range []string{"x", "", "a.b", "*", ">", "../x"} {
		check.ErrorIs(t, check.Err(s.Get(t.Context(), id)), store.ErrNotFound, id)
	}
}
