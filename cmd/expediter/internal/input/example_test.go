package input_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/expediter-io/expediter/cmd/expediter/internal/input"
)

func ExampleReader() {
	reader := input.NewReader(input.Config{Stdin: strings.NewReader(`id,name,city,stars
p1,קפה שקד,חיפה,4
p2,,Haifa,3
p3,Noodle Bar,Haifa,5
`)})
	for place, err := range reader.Files(context.Background(), input.Stdin) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(place.Restaurant.PlaceID, place.Restaurant.Name, string(place.Restaurant.Field("stars")))
	}
	for _, problem := range reader.Report().Problems {
		fmt.Println(problem)
	}
	// Output:
	// p1 קפה שקד "4"
	// p3 Noodle Bar "5"
	// stdin:3: name: is required
}
