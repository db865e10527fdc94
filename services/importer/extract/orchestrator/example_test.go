package orchestrator_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"

	"github.com/expediter-io/expediter/internal/remote"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/internal/remotetest"
	"github.com/expediter-io/expediter/services/importer/extract/orchestrator"
)

func ExampleExtractor() {
	server := httptest.NewServer(remotetest.Says(documented)) // stands for the service
	defer server.Close()

	e, err := orchestrator.New(remote.Config{BaseURL: server.URL, Token: "secret"})
	if err != nil {
		log.Fatal(err)
	}

	r, err := e.Extract(context.Background(), cookies())
	if failed := extract.Failure(err); failed != nil {
		log.Fatal(failed.Message, " again: ", failed.Retryable, " after ", failed.RetryAfter)
	}
	fmt.Println(r.Title)
	for _, i := range r.Ingredients {
		fmt.Println(i.Qty, i.Unit, i.Item)
	}
	// Output:
	// Perfect Chocolate Chip Cookies
	// 2.5 cup flour
}
