package importer_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service/access"
	"github.com/expediter-io/expediter/services/importer"
)

func TestACallerReachesItsOwnImportsOnly(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys.json")
	authorization := map[string]string{}
	for _, user := range []string{"ann", "bob"} {
		secret := check.Must(access.Add(keys, access.Key{Name: user, User: user, Scopes: access.Scopes()}))(t)
		authorization[user] = "Bearer " + secret
	}
	v := newVideos(t)
	i, _ := start(t, natstest.Server(t), func(c *importer.Config) { c.Keys = keys })
	submitted, text := call(t, http.MethodPost, i.URL()+"/v1/imports",
		`{"job_id":"anns","owner_id":"ann","source_type":"captions","url":"`+v.URL+`/soup.vtt"}`, "Authorization", authorization["ann"])
	check.Require(t, submitted.StatusCode == http.StatusAccepted, "ann's import: %d %s", submitted.StatusCode, text)
	var job importer.Job
	err := i.Follow(t.Context(), "anns", func(j importer.Job) error { job = j; return nil })
	check.Require(t, err == nil && job.RecipeID != "", "ann's import ends as %+v, %v", job, err)
	for request, want := range map[string]int{
		"GET /v1/imports/anns": 200, "GET /v1/imports/anns/events": 200, "POST /v1/imports/anns/cancel": 409,
		"POST /v1/imports/anns/retry": 409, "GET /v1/recipes/" + job.RecipeID: 200, "GET /v1/recipes?owner=ann": 200,
	} {
		method, path, _ := strings.Cut(request, " ")
		if resp, text := call(t, method, i.URL()+path, "", "Authorization", authorization["ann"]); resp.StatusCode != want {
			t.Errorf("%s of ann: %d %s", request, resp.StatusCode, text)
		}
		resp, text := call(t, method, i.URL()+path, "", "Authorization", authorization["bob"])
		check.That(t, resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusForbidden,
			"%s of bob: %d %s", request, resp.StatusCode, text)
	}
	file, kind := form(t, "owner_id", "ann", "@soup.vtt", "WEBVTT")
	resp, text := call(t, http.MethodPost, i.URL()+"/v1/imports", file, "Authorization", authorization["bob"], "Content-Type", kind)
	check.Same(t, fmt.Sprintf("a file of bob for ann: %s", text), resp.StatusCode, http.StatusForbidden)
	taken := `{"job_id":"anns","owner_id":"bob","source_type":"captions","url":"` + v.URL + `/soup.vtt"}`
	resp, text = call(t, http.MethodPost, i.URL()+"/v1/imports", taken, "Authorization", authorization["bob"])
	check.That(t, resp.StatusCode == http.StatusConflict && !strings.Contains(text, job.RecipeID),
		"ann's id for an import of bob: %d %s", resp.StatusCode, text)
}
