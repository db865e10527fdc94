package output_test

import (
	"fmt"
	"os"

	"github.com/expediter-io/expediter/cmd/expediter/internal/output"
)

func ExampleNew() {
	w := output.New(os.Stdout, output.FormatTable, false)
	score := 0.991
	for _, row := range []output.Row{
		{PlaceID: "p1", Name: "Sushi Gal", Status: "FOUND", URL: "https://wolt.com/en/isr/haifa/restaurant/sushi-gal", Score: &score, Venue: "Sushi Gal Haifa"},
		{PlaceID: "p2", Name: "Noodle Bar", Status: "PENDING", Reason: "ambiguous"},
	} {
		if err := w.Write(row); err != nil {
			fmt.Println(err)
		}
	}
	if err := w.Close(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// PLACE ID  NAME        STATUS   REASON     SCORE  VENUE            URL
	// p1        Sushi Gal   FOUND    -          0.991  Sushi Gal Haifa  https://wolt.com/en/isr/haifa/restaurant/sushi-gal
	// p2        Noodle Bar  PENDING  ambiguous  -      -                -
}
