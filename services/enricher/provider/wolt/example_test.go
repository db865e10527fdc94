package wolt_test

import (
	"context"
	"fmt"

	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/enricher/provider/wolt"
	"github.com/expediter-io/expediter/services/enricher/provider/wolt/wolttest"
)

func ExampleClient_Search() {
	server := wolttest.Start(wolttest.Config{Venues: []wolttest.Venue{
		{ID: "5ae6013cf78b5a000bb64022", Slug: "giraffe", Name: "Giraffe", Country: "ISR", Lat: 32.0813, Lon: 34.7806},
	}})
	defer server.Close()
	client, err := wolt.New(wolt.Config{BaseURL: server.URL()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	place := match.Place{Name: "Giraffe", Location: &match.Point{Lat: 32.0812, Lng: 34.7807}}
	venues, err := client.Search(context.Background(), place)
	fmt.Println(venues[0].Name, venues[0].URL, err)
	server.FailAlways(wolttest.NoContent())
	_, err = client.Search(context.Background(), place)
	fmt.Println(provider.KindOf(err))
	// Output:
	// Giraffe https://wolt.com/en/isr/tel-aviv/restaurant/giraffe <nil>
	// blocked
}

func ExampleNew() {
	_, err := wolt.New(wolt.Config{})
	fmt.Println(err)
	// Output:
	// wolt: misconfigured: the configuration cannot be used: BaseURL is missing: set it to an address that you may ask automatically; there is no default
}
