package openai_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/internal/remotetest"
	"github.com/expediter-io/expediter/services/importer/extract/openai"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// key is a secret that must turn up in one header and nowhere else.
const key = "sk-s3cr3tKey"

// prompt returns the messages of a call as one text.
func prompt(t *testing.T, f *remotetest.Server, call int) (system, user string) {
	t.Helper()
	_, bodies := f.Asked()
	var got struct {
		Messages []struct {
			Content string `json:"content"`
		} `json:"messages"`
	}
	check.OK(t, json.Unmarshal([]byte(bodies[call]), &got))
	return got.Messages[0].Content, got.Messages[1].Content
}

// setup starts a service that answers with answer, and an extractor that asks it.
func setup(t *testing.T, answer http.HandlerFunc, mutate ...func(*openai.Config)) (*remotetest.Server, *openai.Extractor) {
	t.Helper()
	server := remotetest.Serve(t, answer)
	config := openai.Config{BaseURL: server.URL + "/v1", Key: key, Model: "cook-1"}
	for _, m := range mutate {
		m(&config)
	}
	e := check.Must(openai.New(config))(t)
	t.Cleanup(e.Close)
	return server, e
}

// completes answers with a completion that holds a text.
func completes(content string) http.HandlerFunc { return remotetest.Says(completion(content, "stop")) }

func completion(content, reason string) string {
	text, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	return `{"id":"1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":` + string(text) +
		`,"refusal":null},"finish_reason":"` + reason + `"}],"usage":{"prompt_tokens":120,"completion_tokens":40,"total_tokens":160}}`
}

// refuses answers with a status and a body as OpenAI has them.
func refuses(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		// A server that repeats what it was sent, secrets and all.
		_, _ = w.Write([]byte(strings.Replace(body, `"error":{`, `"error":{"echo":"`+r.Header.Get("Authorization")+`",`, 1)))
	}
}

func pancakes() extract.Input {
	return extract.Input{
		Title: "Pancakes", Description: "Ingredients\n2 cups flour", Language: "en", Duration: time.Minute,
		Chapters: []extract.Chapter{{Start: 20 * time.Second, Title: "Frying"}},
		Segments: []caption.Segment{
			{Start: 0, Dur: 5 * time.Second, Text: "Whisk the flour with three eggs."},
			{Start: 20 * time.Second, Dur: 5 * time.Second, Text: "Fry it for two minutes over medium heat."},
		},
		Source: recipe.Source{Type: "youtube", Ref: "https://video.example/pancakes"},
	}
}

// honest is what a good model says of pancakes, in the form of the schema.
const honest = `{"title":"Pancakes","description":"","servings":"","language":"en","times":{"prep_sec":0,"cook_sec":0,"total_sec":0},
	"ingredients":[{"qty":"2","unit":"cup","item":"flour","note":"","section":"","raw":"2 cups flour"},
		{"qty":"3","unit":"","item":"eggs","note":"","section":"","raw":"three eggs"}],
	"steps":[{"text":"Whisk flour and eggs.","timestamp_sec":0,"times":[],"temperatures":[]},
		{"text":"Fry for 2 minutes.","timestamp_sec":20,"times":[{"min_sec":120,"max_sec":120,"until":"","raw":"two minutes"}],
		"temperatures":[{"degrees":0,"max_degrees":0,"scale":"","level":"medium","raw":"medium heat"}]}]}`

func honestRecipe() recipe.Recipe {
	return recipe.Recipe{
		Title: "Pancakes", Language: "en",
		Ingredients: []recipe.Ingredient{
			{Qty: "2", Unit: "cup", Item: "flour", Raw: "2 cups flour"}, {Qty: "3", Item: "eggs", Raw: "three eggs"},
		},
		Steps: []recipe.Step{
			{Index: 1, Text: "Whisk flour and eggs.", Timestamp: new(0.0)},
			{
				Index: 2, Text: "Fry for 2 minutes.", Timestamp: new(20.0),
				Times:        []recipe.Duration{{MinSec: 120, MaxSec: 120, Raw: "two minutes"}},
				Temperatures: []recipe.Temperature{{Level: "medium", Raw: "medium heat"}},
			},
		},
		Source: recipe.Source{Type: "youtube", Ref: "https://video.example/pancakes", Extractor: "openai"},
	}
}
