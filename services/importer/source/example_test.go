package source_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

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

func ExampleCaptions() {
	const file = "WEBVTT\n\n00:01.000 --> 00:04.000\nSift two cups of <b>flour</b>\ninto a large bowl.\n\n00:05.000 --> 00:07.000\nStir in the milk.\n"
	m, err := source.Captions("Pancakes", strings.NewReader(file), source.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if err := m.Transcript.WriteText(os.Stdout); err != nil {
		log.Fatal(err)
	}
	// Output:
	// [1.00s] Sift two cups of flour into a large bowl.
	// [5.00s] Stir in the milk.
}
