package contracts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// BenchmarkEnrich reads a request, writes a state into each restaurant, and writes the answer.
func BenchmarkEnrich(b *testing.B) {
	for _, places := range []int{1, 10, 100} {
		var list []string
		for i := range places {
			list = append(list, fmt.Sprintf(`{"placeId":"ChIJ%d","name":"Pizza House %d","address":"Dizengoff St 99, Tel Aviv-Yafo","location":{"lat":32.0793,"lng":34.774},"rating":4.5,"userRatingsTotal":1234,"photos":[{"w":400,"h":300,"url":"https://x.example/a"}],"openingHours":{"open":true,"periods":["09:00-22:00"]},"providers":{"wolt":{"status":"PENDING","url":null}},"wolt":{"status":"PENDING","url":null}}`, i, i))
		}
		body := []byte(`{"requestId":"req_1","cityText":"Tel Aviv","results":[` + strings.Join(list, ",") + `]}`)
		state := contracts.FoundState("https://wolt.com/en/isr/tel-aviv/restaurant/pizza-house")
		b.Run(fmt.Sprint(places), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				request, err := contracts.Decode[contracts.EnrichRequest](body)
				if err != nil {
					b.Fatal(err)
				}
				for i := range request.Results {
					request.Results[i].SetState(contracts.ProviderWolt, state, true)
				}
				if _, err := contracts.Encode(contracts.EnrichResponse{RequestID: "r", Results: request.Results}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
