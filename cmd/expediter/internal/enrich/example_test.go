package enrich

import (
	"context"
	"fmt"
	"strings"

	"github.com/expediter-io/expediter/cmd/expediter/internal/input"
	"github.com/expediter-io/expediter/cmd/expediter/internal/output"
	"github.com/expediter-io/expediter/pkg/contracts"
)

func ExampleRun() {
	reader := input.NewReader(input.Config{Stdin: strings.NewReader("id,name\np1,Sushi Gal\np2,Noodle Bar\n")})
	var text strings.Builder
	out := output.New(&text, output.FormatCSV, false)
	e := enricherFunc(func(_ context.Context, req contracts.EnrichRequest) (Answer, error) {
		return states(req, func(id string) contracts.ProviderState {
			if id == "p1" {
				return contracts.FoundState("https://wolt.com/en/isr/haifa/restaurant/sushi-gal")
			}
			return contracts.NotFoundState()
		}), nil
	})
	summary, err := Run(context.Background(), e, reader.Files(context.Background(), input.Stdin), out, Config{Wait: true})
	if err == nil {
		err = out.Close()
	}
	fmt.Println(summary.Found, summary.NotFound, err)
	fmt.Print(text.String())
	// Output:
	// 1 1 <nil>
	// placeId,name,status,url,score,venueId,venue,reason
	// p1,Sushi Gal,FOUND,https://wolt.com/en/isr/haifa/restaurant/sushi-gal,,,,
	// p2,Noodle Bar,NOT_FOUND,,,,,
}
