package openai_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"

	"github.com/expediter-io/expediter/internal/remote"
	"github.com/expediter-io/expediter/services/importer/extract/openai"
)

func ExampleExtractor() {
	server := httptest.NewServer(completes(honest)) // stands for https://api.openai.com, or any that speaks like it
	defer server.Close()

	e, err := openai.New(openai.Config{Config: remote.Config{BaseURL: server.URL + "/v1", Token: "secret"}, Model: "cook-1"})
	if err != nil {
		log.Fatal(err)
	}

	r, err := e.Extract(context.Background(), pancakes())
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range r.Steps {
		fmt.Printf("%gs %s\n", *s.Timestamp, s.Text)
	}
	// Output:
	// 0s Whisk flour and eggs.
	// 20s Fry for 2 minutes.
}
