package catalog_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider/catalog"
)

func ExampleRead() {
	file := `id,name,address,city,url
v1,Giraffe,Ibn Gabirol 49,Tel Aviv,https://example.com/giraffe
v2,מוזס,רוטשילד 35,תל אביב,https://example.com/moses
`
	c, err := catalog.Read(strings.NewReader(file), "shelf")
	if err != nil {
		fmt.Println(err)
		return
	}
	venues, err := c.Search(context.Background(), match.Place{Name: "Moses"})
	fmt.Println(venues[0].ID, venues[0].Name, venues[0].URL, err)
	// Output:
	// v2 מוזס https://example.com/moses <nil>
}
