package source_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/expediter-io/expediter/services/importer/source"
)

func ExampleSources_Identify() {
	s, err := source.New(source.Config{})
	if err != nil {
		log.Fatal(err)
	}
	for _, address := range []string{
		"https://www.youtube.com/watch?v=dQw4w9WgXcQ&t=42s", "https://youtu.be/dQw4w9WgXcQ", "https://www.youtube.com/@cook",
	} {
		id, err := s.Identify(context.Background(), source.Request{URL: address})
		if failed, ok := errors.AsType[*source.Error](err); ok {
			fmt.Println(failed.Code, failed.Retryable)
			continue
		}
		fmt.Println(id)
	}
	// Output:
	// youtube:dQw4w9WgXcQ
	// youtube:dQw4w9WgXcQ
	// unavailable false
}
